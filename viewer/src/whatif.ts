/** The needs of a recording with changes, other settings, or another device; or of two, at another batch size. */

import type { Cure, Finding, Gpu } from '../engine/engine.d.ts';
import { Latest } from './client.ts';
import { tryCure } from './cures.ts';
import { button, element } from './dom.ts';
import { codeOf } from './findings.ts';
import { bytes, name, typedBytes } from './format.ts';
import type { Lane } from './lane.ts';
import { AS_RECORDED, attempt, changesOf, isTried, touches, TRIED, tried } from './state.ts';
import { variedOf } from './predicted.ts';
import { fitAnswer, simulated } from './tried.ts';
import { typedVary, type Varied } from './varied.ts';
import type { View } from './view.ts';

const MIB = 2 ** 20;
/** The step of the slider. */
const STEP = 64 * MIB;
/** Milliseconds after which typed text takes effect. */
const PAUSE = 250;
/** The suggested settings. */
const SETTINGS = [
    'expandable_segments:True',
    'max_split_size_mb:512',
    'garbage_collection_threshold:0.8',
    'roundup_power2_divisions:4',
];

export class WhatIfView implements View {
    readonly tab = 'whatif';
    readonly title = 'What if';
    readonly drawn = [];
    readonly panel = element('div', { class: 'panel whatif' });

    #found: readonly Finding[] = [];
    #latest = new Latest();
    /** Updates the inputs to what is tried. */
    readonly #updates: (() => void)[] = [];
    readonly #cures = element('div', { class: 'cures' }, element('p', { class: 'note' }, 'Looking for changes to try…'));
    readonly #answer = element('div', { class: 'answer', 'aria-live': 'polite' });
    #isBegun = false;

    constructor(
        private readonly lanes: readonly Lane[],
        /** Switches to a device. */
        private readonly turn: (device: number) => Promise<void>,
        private readonly fail: (error: unknown) => void,
    ) {
        lanes[0].store.subscribe((state, changed) => {
            if (!this.#isBegun) return;
            if (changed.has('device')) {
                this.#fillCures();
                void this.#choices().catch(this.fail);
            }
            if (touches(changed, 'device', ...TRIED)) {
                for (const update of this.#updates) update();
                if (state.tab === 'whatif') this.#ask();
            }
        });
    }

    show(): void {
        if (!this.#isBegun) {
            this.#isBegun = true;
            void this.#begin().catch(this.fail);
        } else this.#ask();
    }

    /** The findings of each recording: the cures of the first one are switches. */
    fill([found]: readonly (readonly Finding[])[]): void {
        this.#found = found;
        this.#fillCures();
    }

    async #begin(): Promise<void> {
        const gpus = await this.lanes[0].recording.client.ask('gpus', []);
        const inputs =
            this.lanes.length > 1
                ? [this.#vary(), this.#device(gpus), this.#settings()]
                : [group('Changes to the program', this.#cures), this.#others(), this.#device(gpus), this.#settings()];
        const { store } = this.lanes[0];
        const back = button('as recorded', 'Return to the recorded curve', () => store.set({ ...AS_RECORDED, value: 0 }));
        this.#updates.push(() => {
            back.disabled = !isTried(store.state) && store.state.value === 0;
        });
        this.panel.replaceChildren(element('div', { class: 'inputs' }, ...inputs, back), this.#answer);
        for (const update of this.#updates) update();
        this.#ask();
    }

    readonly #calls = element('select', { 'aria-label': 'Checkpointing' });
    readonly #optimizers = element('select', { 'aria-label': 'Optimizer' });

    /** Changes by name: checkpointing, another optimizer, offloading, gradient accumulation; and where batch sizes are predicted. */
    #others(): HTMLElement {
        const { store } = this.lanes[0];
        const offloads = ['optimizer', 'activations'].map((what) => element('input', { type: 'checkbox', value: `offload:${what}` }));
        const wrong = element('p', { class: 'note alarm', hidden: '' });
        const asking = new Latest();
        const choose = () => {
            const chosen = [this.#calls.value, this.#optimizers.value, ...offloads.filter((each) => each.checked).map((each) => each.value)];
            const changes = chosen.filter((each) => each !== '').join(';');
            // The state does not change to changes that the engine refuses.
            asking.run(async () => {
                let why = '';
                try {
                    const [lane] = this.lanes;
                    const attempted = attempt({ ...store.state, changes });
                    if (changes !== '') await lane.recording.client.ask('tried', [lane.device.device, ...attempted]);
                    store.set({ changes });
                } catch (error) {
                    why = error instanceof Error ? error.message : String(error);
                }
                wrong.textContent = name(why, 400);
                wrong.hidden = why === '';
            });
        };
        for (const each of [this.#calls, this.#optimizers, ...offloads]) each.addEventListener('change', choose);
        this.#updates.push(() => {
            const changes = changesOf(store.state);
            const of = (kind: string) => changes.find((each) => each.startsWith(kind)) ?? '';
            this.#calls.value = of('checkpoint:');
            this.#optimizers.value = of('optimizer:');
            for (const each of offloads) each.checked = changes.includes(each.value);
        });
        void this.#choices().catch(this.fail);
        const words = ['optimizer state', 'activations'];
        const labels = offloads.map((each, at) => element('label', {}, each, ` ${words[at]} on the CPU`));
        const batch = element('p', { class: 'note' }, 'Another batch size: compare with a recording that differs in it, and memviz predicts others.');
        return group('Checkpointing, optimizer, offloading, batch', this.#calls, this.#optimizers, element('span', { class: 'line-of' }, ...labels), wrong, batch);
    }

    /** Fills the choices of a device. */
    async #choices(): Promise<void> {
        const [{ recording, device }] = this.lanes;
        const { calls, optimizers } = await recording.client.ask('choices', [device.device]);
        const fill = (select: HTMLSelectElement, none: string, kind: string, names: readonly string[], before: string) =>
            select.replaceChildren(
                element('option', { value: '' }, none),
                ...names.map((each) => element('option', { value: `${kind}:${each}` }, before + name(each, 100))),
            );
        fill(this.#calls, calls.length === 0 ? 'no repeated calls to checkpoint' : 'no further checkpointing', 'checkpoint', calls, 'checkpoint ');
        fill(this.#optimizers, 'the recorded optimizer', 'optimizer', optimizers, 'optimizer ');
        for (const update of this.#updates) update();
    }

    /** The memory of the device: a slider, a number, and GPUs by name. */
    #device(gpus: readonly Gpu[]): HTMLElement {
        const { store } = this.lanes[0];
        const [slider, size] = [
            element('input', { type: 'range', 'aria-label': 'Memory of the device', min: String(STEP), step: String(STEP) }),
            element('input', { type: 'search', 'aria-label': 'Memory of the device, as a size', placeholder: 'such as 24 GiB' }),
        ];
        const named = element('select', { 'aria-label': 'GPU' }, element('option', { value: '' }, 'a GPU by name'));
        for (const gpu of gpus)
            named.append(element('option', { value: String(gpu.memory_bytes) }, `${gpu.name}, ${bytes(gpu.memory_bytes)}`));
        const set = (capacity: number) => store.set({ capacity: Math.round(capacity / MIB) * MIB });
        slider.addEventListener('input', () => set(Number(slider.value)));
        named.addEventListener('change', () => set(Number(named.value)));
        typing(size, () => {
            const count = typedBytes(size.value);
            size.setAttribute('aria-invalid', String(count === null));
            if (count !== null) set(count);
        });
        this.#updates.push(() => {
            const { capacity } = store.state;
            const highest = Math.max(...this.lanes.map(({ device }) => device.peak.reserved.bytes || device.peak.allocated.bytes));
            const known = Math.max(...this.lanes.map(({ device }) => device.capacity_bytes ?? 0));
            slider.max = String((Math.ceil(Math.max(2 * highest, 1.25 * known, capacity) / STEP) + 16) * STEP);
            slider.value = String(capacity === 0 ? Math.max(highest, known) : capacity);
            slider.setAttribute('aria-valuetext', capacity === 0 ? 'as recorded' : bytes(capacity));
            named.value = [...named.options].some(({ value }) => value === String(capacity)) ? String(capacity) : '';
            if (document.activeElement !== size) size.value = capacity === 0 ? '' : bytes(capacity);
        });
        return group('Memory of the device', slider, element('span', { class: 'line-of' }, size, named));
    }

    /** The allocator settings, as PyTorch takes them. */
    #settings(): HTMLElement {
        const { store } = this.lanes[0];
        const input = element('input', {
            type: 'search',
            list: 'settings',
            'aria-label': 'Allocator settings',
            placeholder: 'as recorded; such as expandable_segments:True',
            spellcheck: 'false',
        });
        const wrong = element('p', { class: 'note alarm', hidden: '' });
        const known = element('datalist', { id: 'settings' }, ...SETTINGS.map((value) => element('option', { value })));
        const [lane] = this.lanes;
        const asking = new Latest();
        typing(input, () => {
            const conf = input.value.trim() === '' ? null : input.value.trim();
            // The state does not change to settings that the engine refuses.
            asking.run(async () => {
                let why = '';
                try {
                    if (conf !== null)
                        await lane.recording.client.ask('tried', [lane.device.device, new Uint32Array(), conf, store.state.capacity, []]);
                    store.set({ conf });
                } catch (error) {
                    why = error instanceof Error ? error.message : String(error);
                }
                input.setAttribute('aria-invalid', String(why !== ''));
                wrong.textContent = name(why, 400);
                wrong.hidden = why === '';
            });
        });
        this.#updates.push(() => {
            if (document.activeElement !== input) input.value = store.state.conf ?? '';
        });
        return group('Allocator settings: PYTORCH_CUDA_ALLOC_CONF', input, known, wrong);
    }

    /** What two recordings differ in, and the value of it to try. */
    #vary(): HTMLElement {
        const { store } = this.lanes[0];
        const input = element('input', {
            type: 'search',
            'aria-label': 'What the recordings differ in',
            placeholder: 'such as batch=4,8',
            spellcheck: 'false',
        });
        const [slider, number] = [
            element('input', { type: 'range', min: '1', 'aria-label': 'Value' }),
            element('input', { type: 'number', min: '1', 'aria-label': 'Value, as a number' }),
        ];
        typing(input, () => {
            const isGood = input.value.trim() === '' || typedVary(input.value, this.lanes.length) !== null;
            input.setAttribute('aria-invalid', String(!isGood));
            if (isGood) store.set({ vary: input.value.trim(), value: 0 });
        });
        const set = (value: string) => store.set({ value: Math.max(0, Math.round(Number(value))) });
        slider.addEventListener('input', () => set(slider.value));
        typing(number, () => set(number.value));
        this.#updates.push(() => {
            const varied = variedOf(this.lanes);
            const { value, vary } = store.state;
            if (document.activeElement !== input) input.value = vary !== '' ? vary : varied ? written(varied) : '';
            slider.disabled = number.disabled = varied === null;
            if (!varied) return;
            const most = Math.max(...varied.values);
            slider.max = String(Math.max(8 * most, value));
            slider.value = String(value === 0 ? most : value);
            if (document.activeElement !== number) number.value = value === 0 ? '' : String(value);
        });
        return group(
            'What A and B differ in, and the value to predict',
            input,
            element('span', { class: 'line-of' }, slider, number),
        );
    }

    /** A switch for each cure of the device. */
    #fillCures(): void {
        const [{ store, device }] = this.lanes;
        const all = this.#found.filter((each) => each.kind === 'advice' && each.device === device.device);
        const row = (sentence: string, [saves]: readonly string[], code: readonly string[], cure: Cure | null) => {
            const box = element('input', { type: 'checkbox', ...(cure ? { 'data-place': String(cure.place) } : { disabled: '' }) });
            box.addEventListener('change', () => {
                if (cure) tryCure(store, this.#found, device.device, cure, box.checked, this.turn).catch(this.fail);
            });
            const said = element('span', {}, name(sentence, 300), element('small', {}, name(saves, 400)), ...codeOf(code));
            return element('label', {}, box, said);
        };
        const rows = all.flatMap(({ sentence, lines, code, cure, alternatives }) => [
            row(sentence, lines, code, cure),
            ...alternatives.map((other) => row(`or ${other.sentence}`, other.lines, other.code, other.cure)),
        ]);
        const none = element('p', { class: 'note' }, 'memviz found no change to the program that would save much.');
        this.#cures.replaceChildren(...(rows.length > 0 ? rows : [none]));
        this.#mark();
    }

    #mark(): void {
        const places = tried(this.lanes[0].store.state);
        for (const box of this.#cures.querySelectorAll<HTMLInputElement>('input[data-place]'))
            box.checked = places.includes(Number(box.dataset.place));
    }

    /** Requests the needs, and shows them. */
    #ask(): void {
        this.#mark();
        this.#latest.run(async () => {
            try {
                const shown = this.lanes.length > 1 ? await fitAnswer(this.lanes, variedOf(this.lanes)) : await simulated(this.lanes[0]);
                this.#answer.replaceChildren(...shown);
            } catch (error) {
                const text = name(error instanceof Error ? error.message : String(error), 1000);
                this.#answer.replaceChildren(element('p', { class: 'alarm' }, text));
            }
        });
    }
}

function written({ name, values }: Varied): string {
    return `${name}=${values.join()}`;
}

function group(title: string, ...parts: HTMLElement[]): HTMLElement {
    return element('fieldset', {}, element('legend', {}, title), ...parts);
}

/** Acts after a pause in typing. */
function typing(input: HTMLInputElement, act: () => void): void {
    let timer = 0;
    input.addEventListener('input', () => {
        clearTimeout(timer);
        timer = window.setTimeout(act, PAUSE);
    });
}
