/** The instant that all views show, in words, and links to others. */

import type { Metric, Tried } from '../engine/engine.d.ts';
import { Latest } from './client.ts';
import { button, element } from './dom.ts';
import { bound, bytes, counted, duration, entry, entryOf, name, whole } from './format.ts';
import { extent, type Lane, letters, sameStep } from './lane.ts';
import { clamped } from './navigate.ts';
import { predictedOf, predictionOf } from './predicted.ts';
import { AS_RECORDED, attempt, changesOf, isTried, type State, touches, tried, TRIED } from './state.ts';

/** So many steps are hardly told apart in the timeline. */
const MANY = 20;

export class Where {
    #latest = new Latest();
    /** Where two recordings diverge, in words. */
    #diverging = '';
    /** Updates the texts of the buttons. */
    #update = (): void => {};
    readonly #texts = element('div', { class: 'texts', 'aria-live': 'polite' });

    constructor(
        host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly fail: (error: unknown) => void,
    ) {
        lanes[0].store.subscribe((_, changed) => {
            if (touches(changed, 'device', 'metric', 'at', 'at2', 'mark', ...TRIED)) this.show();
        });
        host.classList.toggle('two', lanes.length > 1);
        host.replaceChildren(this.#texts, this.#buttons());
        this.show();
    }

    show(): void {
        this.#update();
        this.#latest.run(async () => {
            try {
                const [first] = this.lanes;
                const texts = await (first.range
                    ? this.#range(first, ...first.range)
                    : Promise.all(this.lanes.map((lane) => this.#text(lane, lane.at))));
                if (this.#diverging !== '') texts.push(this.#diverging);
                const cured = await this.#cured(first);
                const names = this.lanes.length > 1 ? [...letters(this.lanes), ''] : first.range ? ['range', ''] : ['at'];
                const lines = texts.map((text, at) =>
                    element('span', {}, element('strong', {}, `${names[at]} `), text),
                );
                this.#texts.replaceChildren(...lines, ...(cured ? [cured] : []));
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** The joint saving of the tried cures. */
    async #cured(lane: Lane): Promise<HTMLElement | null> {
        const { state } = lane.store;
        if (this.lanes.length > 1) return this.#predicted(state);
        if (!isTried(state)) return null;
        const cured = await lane.recording.client.ask('tried', [lane.device.device, ...attempt(state)]);
        // A request that failed is included in the needs.
        const isServed = lane.device.ooms.length > 0 && cured?.fails === null ? ', including the failed request' : '';
        const said = cured ? saved(cured, lane.device.entries) + isServed : 'no significant difference';
        // The engine decides which curves exist: other curves of a simulation could not be compared.
        const { metric } = state;
        const isDrawn = metric === 'allocated' || (metric === 'reserved' && cured?.reserved_trust === cured?.trust);
        const missing = isDrawn ? '' : `; no curve of ${metric} memory can be simulated`;
        const count = tried(state).length + Number(state.conf !== null) + Number(state.capacity > 0) + changesOf(state).length;
        const title = count === 1 ? 'with the change: ' : `with ${count} changes: `;
        return element('span', { class: 'cured' }, element('strong', {}, title), said + missing);
    }

    /** The needs at the tried number. */
    async #predicted({ value }: Readonly<State>): Promise<HTMLElement | null> {
        const varied = predictedOf(this.lanes);
        if (!varied) return null;
        // "What if" shows what is wrong with the request.
        const found = await predictionOf(this.lanes, varied).catch(() => null);
        if (!found) return null;
        const { finishes, max_allocated_bytes, max_reserved_bytes, trust } = found;
        const peak = `peak ${bytes(max_allocated_bytes)} allocated, ${bytes(max_reserved_bytes)} reserved`;
        const said = `${peak} (${trust})${finishes ? '' : ', out of memory'}`;
        return element('span', { class: 'cured' }, element('strong', {}, `with ${name(varied.name, 40)} ${whole(value)}: `), said);
    }

    /** Two recordings diverge somewhere. */
    diverge(text: string): void {
        this.#diverging = text;
        this.show();
    }

    /** A range, and its flow as one sum. */
    async #range(lane: Lane, from: number, to: number): Promise<string[]> {
        const { device, recording, store } = lane;
        const { metric } = store.state;
        const flow = await recording.client.ask('flow', [device.device, metric, from, to]);
        const x = (instant: number) => recording.x(device.device, instant, 'time');
        const time = recording.figures.has_times ? ` in ${duration(x(to) - x(from))}` : '';
        const all = [`${entry(from)} to ${entry(to)}`, `${counted(to - from, 'entry', 'entries')}${time}`];
        const limit = bound(device.bounds[metric]);
        const [came, went] = metric === 'reserved' ? ['reserved', 'released'] : ['allocated', 'freed'];
        const sum = [
            `${limit}${bytes(flow.from_bytes)} + ${bytes(flow.allocated_bytes)} ${came}`,
            ` − ${bytes(flow.freed_bytes)} ${went} = ${limit}${bytes(flow.to_bytes)} ${metric}`,
        ];
        return [all.join(' · '), `${sum.join('')} · ${bytes(flow.survived_bytes)} survived`];
    }

    async #text(lane: Lane, instant: number): Promise<string> {
        const { device, recording, store } = lane;
        const { metric } = store.state;
        const value = async (of: Metric) =>
            bound(device.bounds[of]) + bytes(await recording.value(device.device, of, instant));
        const [held, reserved] = await Promise.all([value(metric), value('reserved')]);
        const parts = [entryOf(instant, device.entries)];
        if (recording.figures.has_times && device.entries > 0) parts.push(`after ${duration(recording.x(device.device, instant, 'time'))}`);
        const open = recording.open(device.device, instant);
        if (open.length > 0) parts.push(`in ${name(open.join(' / '), 80)}`);
        parts.push(`${held} ${metric}`);
        if (device.has_reserved && metric !== 'reserved') parts.push(`${reserved} reserved`);
        return parts.join(' · ');
    }

    /** Links to other instants: created once, so that they keep the focus. */
    #buttons(): HTMLElement {
        const [first, second] = this.lanes;
        const peak = button(second ? 'both peaks' : 'peak', 'Look at the peak', () => {
            for (const lane of this.lanes) lane.at = lane.peak();
        });
        if (second) {
            const parts = button('first difference', 'Look at the first request that differs', () => {
                for (const lane of this.lanes) if (lane.diverges !== null) lane.at = lane.diverges;
            });
            const step = button('same step', 'Move the cursor of B to the same point of the same step as that of A', () => {
                const at = sameStep(first, second);
                if (at !== null) second.at = at;
            });
            const recorded = button('as recorded', 'Return to the recorded curves', () => first.store.set({ ...AS_RECORDED, value: 0 }));
            this.#update = () => {
                parts.hidden = this.lanes.every((lane) => lane.diverges === null);
                step.hidden = sameStep(first, second) === null;
                recorded.hidden = first.store.state.value === 0;
            };
            return element('span', { class: 'buttons over-time' }, peak, step, parts, recorded);
        }
        const oom = button('OOM', 'Look at the first failed request', () => {
            first.at = first.device.ooms[0].instant;
        });
        const mark = button('', '', () => {
            first.store.set({ mark: first.mark === null ? first.at : null });
        });
        const zoom = button('zoom to the range', 'Show the range at full width', () => {
            const [from, to] = first.range!;
            const [left, right] = [first.x(from), first.x(to)];
            const margin = 0.05 * (right - left);
            first.store.set(clamped(left - margin, right + margin, extent(this.lanes)));
        });
        const steps = button('compare steps', 'Draw all steps above each other', () => first.store.set({ tab: 'steps' }));
        const recorded = button('as recorded', 'Return to the recorded curve', () => first.store.set(AS_RECORDED));
        this.#update = () => {
            recorded.hidden = !isTried(first.store.state);
            zoom.hidden = first.range === null;
            steps.hidden = first.recording.steps(first.device.device).length < MANY;
            oom.hidden = first.device.ooms.length === 0;
            const isMarked = first.mark !== null;
            mark.textContent = isMarked ? 'end the range' : 'compare with…';
            mark.title = isMarked
                ? 'Return to a single instant (m)'
                : 'Mark this instant, then move to another to see what happened in between (m); or drag on the timeline';
        };
        return element('span', { class: 'buttons over-time' }, peak, oom, steps, recorded, zoom, mark);
    }
}

/** Peaks with what is tried, compared with the others, and how far you can trust them. */
function saved({ allocated, reserved, fails, trust, reserved_trust, because }: Tried, entries: number): string {
    if (!allocated || !reserved) return `not simulated: ${name(because, 200)}`;
    if (fails !== null) return `out of memory at ${entryOf(fails, entries)}`;
    const of = ({ before, after }: typeof allocated, what: string) =>
        `${bytes(after)} instead of ${bytes(before)} ${what}`;
    const doubts = [trust === 'exact' ? '' : trust, reserved_trust === trust ? '' : `reserved ${reserved_trust}`];
    const doubt = doubts.filter((each) => each !== '').join('; ');
    return `peak ${of(allocated, 'allocated')}, ${of(reserved, 'reserved')}${doubt === '' ? '' : ` (${doubt})`}`;
}
