/** Details of what was clicked: a group's share, or an allocation's stack, sizes, lifetime and neighbors. */

import type { Allocation, Frame, Neighbor } from '../engine/engine.d.ts';
import { Latest } from './client.ts';
import { breakable, button, element } from './dom.ts';
import { bytes, counted, duration, entry, growth, holders, name, share, whole } from './format.ts';
import type { Lane } from './lane.ts';
import { withLine } from './sources.ts';
import { OTHERS } from './stacked.ts';
import { touches } from './state.ts';
import type { Found, Table } from './table.ts';

/** Number of frames that are shown at first. */
const FRAMES = 60;

export class Details {
    #latest = new Latest();

    constructor(
        private readonly host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly table: Table,
        /** Shown if nothing is selected. */
        private readonly otherwise: HTMLElement,
        private readonly fail: (error: unknown) => void,
    ) {
        host.tabIndex = -1;
        lanes[0].store.subscribe((_, changed) => {
            if (touches(changed, 'selected', 'at', 'at2', 'by', 'metric', 'device', 'mark')) this.show();
        });
    }

    show(): void {
        const { selected } = this.lanes[0].store.state;
        this.host.parentElement!.classList.toggle('open', selected !== null);
        if (selected === null) {
            this.#fill(
                this.otherwise,
                element('p', { class: 'note' }, 'Click a band, a block or a row to see what it is.'),
            );
            return;
        }
        this.#latest.run(async () => {
            try {
                if ('label' in selected) {
                    await this.#group(selected.label, selected.isBand);
                    return;
                }
                const lane = this.lanes[selected.second ? 1 : 0];
                if ('entry' in selected) {
                    await this.#entry(lane, selected.entry);
                    return;
                }
                const { device } = lane.device;
                this.#allocation(lane, await lane.recording.client.ask('allocation', [device, selected.allocation]));
            } catch (error) {
                // The previous content belongs to something else.
                this.#fill(this.#title('Nothing to show'));
                this.fail(error);
            }
        });
    }

    /** Replaces the content; the focus stays if it was inside. */
    #fill(...parts: HTMLElement[]): void {
        const hadFocus = this.host.contains(document.activeElement);
        this.host.replaceChildren(...parts);
        if (hadFocus) this.host.focus();
    }

    /** Shows a stack that belongs to no group and no allocation. */
    frames(
        lane: Lane,
        title: string,
        facts: readonly (readonly [string, string])[],
        labels: readonly string[],
        /** The function with callers and callees, if they can be shown. */
        called: string | null = null,
    ): void {
        this.#latest.run(async () => {
            try {
                const frames = await framesOf(lane, labels);
                this.host.parentElement!.classList.add('open');
                const around = called !== null ? [element('p', { class: 'actions' }, this.#around(called))] : [];
                const shown = frames.length > 0 ? [heading('Stack'), stack(frames)] : [];
                this.#fill(this.#title(title), list(facts), ...around, ...shown);
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** A link to the callers and callees of a function. */
    #around(called: string): HTMLElement {
        const { store } = this.lanes[0];
        return button('Callers and callees', 'Show this function with its callers and callees', () =>
            store.set({ around: called, tab: 'flame' }),
        );
    }

    async #group(label: string, isBand: boolean): Promise<void> {
        const found = await this.table.find(label, isBand);
        const parts: HTMLElement[] = [this.#title(label)];
        if (found) {
            const { line } = found;
            parts.push(list(this.#shares(found)));
            const isFunction = this.lanes[0].store.state.by === 'function' && !isBand;
            // Memory that backward allocates is below the forward call that it belongs to.
            const called = label.replace(/^backward of /, '');
            if (isFunction) parts.push(element('p', { class: 'actions' }, this.#around(called)));
            if (line.stack.length > 0)
                parts.push(heading('Stack'), stack(await framesOf(this.lanes[line.second ? 1 : 0], line.stack)));
        } else {
            const isOther = label === OTHERS;
            const [first, second] = this.lanes;
            const where = second ? 'in A or in B' : `at ${entry(first.at)}`;
            const text = isOther ? 'All groups that are too small to show individually.' : `It holds no memory ${where}.`;
            parts.push(element('p', { class: 'note' }, text));
        }
        this.#fill(...parts);
    }

    /** The share of a group: the table's figures, under its headers. */
    #shares({ line, content: { heads, before, total } }: Found): [string, string][] {
        const { metric } = this.lanes[0].store.state;
        const size = (count: number, of: number) => `${bytes(count)}  ${share(count, of)}`;
        const facts: [string, string][] = [];
        if (line.purpose !== null) facts.push(['category', line.purpose]);
        if (line.before === null) {
            facts.push([heads[1], size(line.bytes, total)]);
            if (line.blocks !== null) facts.push([metric === 'reserved' ? 'segments' : 'blocks', whole(line.blocks)]);
            facts.push(['exactly', `${whole(line.bytes)} bytes`]);
        } else {
            const change = line.bytes - line.before;
            facts.push([heads[0], size(line.before, before ?? 0)]);
            if (line.flow) {
                const { allocated_bytes, freed_bytes, survived_bytes, allocated_blocks, freed_blocks } = line.flow;
                facts.push(['allocated', `${bytes(allocated_bytes)} in ${counted(allocated_blocks, 'block')}`]);
                facts.push(['of which survived', bytes(survived_bytes)]);
                facts.push(['freed', `${bytes(freed_bytes)} in ${counted(freed_blocks, 'block')}`]);
            }
            facts.push([heads[1], size(line.bytes, total)]);
            facts.push(['change', `${growth(change)} (${whole(change)} bytes)`]);
        }
        if (line.inferred) facts.push(['inferred', 'the label is inferred, not recorded']);
        return facts;
    }

    /** An entry that neither allocates nor frees a block: of a segment, or a failed request. */
    async #entry(lane: Lane, number: number): Promise<void> {
        const { device } = lane.device;
        const { client } = lane.recording;
        const [[event], frames] = await Promise.all([
            client.ask('events', [device, Uint32Array.of(number)]),
            client.ask('stack', [device, number]),
        ]);
        if (!event) throw new Error(`${lane.device.name} has no entry ${whole(number)}`);
        const facts: [string, string][] = [['bytes', `${bytes(event.bytes)} (${whole(event.bytes)})`]];
        if (event.stream !== null) facts.push(['stream', String(event.stream)]);
        if (event.device_free !== null) facts.push(['device free', bytes(event.device_free)]);
        if (event.address !== null) facts.push(['address', event.address]);
        const none = element('p', { class: 'note' }, 'no stack was recorded');
        this.#fill(
            this.#title(`${event.action}, ${entry(number + 1)}`),
            list(facts),
            heading('Stack'),
            frames.length > 0 ? stack(frames) : none,
        );
    }

    #allocation(lane: Lane, of: Allocation): void {
        const { device } = lane.device;
        const { has_times } = lane.recording.figures;
        const when = (instant: number) => {
            const time = has_times ? `, after ${duration(lane.recording.x(device, instant, 'time'))}` : '';
            return `${entry(instant)}${time}`;
        };
        const facts: [string, string][] = [
            ['requested', `${bytes(of.requested_bytes)} (${whole(of.requested_bytes)})`],
            ['block size', `${bytes(of.block_bytes)} (${whole(of.block_bytes)})`],
            ['category', `${name(of.category)}${of.inferred ? ' *' : ''}`],
            ['because', name(of.evidence, 400)],
            ...(of.holders.length > 0 ? [['held by', holders(of.holders)] as [string, string]] : []),
            ['allocated', of.born === 0 ? 'before the recording' : when(of.born)],
            ['freed', of.freed === null ? 'not in the recording' : when(of.freed)],
        ];
        if (of.freed !== null && of.completed !== of.freed)
            facts.push(['reusable', of.completed === null ? 'not in the recording' : when(of.completed)]);
        if (of.born_us !== null && of.freed_us !== null) facts.push(['lived', duration(of.freed_us - of.born_us)]);
        if (of.phase !== null) facts.push(['phase', name(of.phase)]);
        if (of.annotations.length > 0) facts.push(['in', name(of.annotations.join(' / '), 300)]);
        if (of.address !== null) facts.push(['address', of.address]);
        facts.push(['id', String(of.id)]);
        if (of.stream !== null) facts.push(['stream', String(of.stream)]);
        if (of.pool !== null) facts.push(['pool', name(of.pool)]);
        const parts: HTMLElement[] = [this.#title(of.site), list(facts)];
        parts.push(
            heading('Stack'),
            of.stack.length > 0 ? stack(of.stack) : element('p', { class: 'note' }, 'no stack was recorded'),
        );
        if (of.forward.length > 0)
            parts.push(heading(of.forward_inferred ? 'Forward stack (inferred)' : 'Forward stack'), stack(of.forward));
        if (of.in_segment)
            parts.push(
                heading('Its neighbors when it was allocated'),
                this.#neighbor(lane, 'before', of.before),
                this.#neighbor(lane, 'after', of.behind),
            );
        const jump = button('Go to its allocation', 'Move the cursor to its allocation', () => {
            lane.at = of.born;
        });
        const { freed } = of;
        const gone = freed === null ? null : button('Go to its free', 'Move the cursor to where it is freed', () => {
            lane.at = freed;
        });
        parts.push(element('p', { class: 'actions' }, jump, gone));
        this.#fill(...parts);
    }

    #neighbor(lane: Lane, side: string, of: Neighbor | null): HTMLElement {
        if (of === null) return element('p', { class: 'neighbor' }, `${side}: the segment's end`);
        const text = `${side}: ${bytes(of.bytes)} ${name(of.state)}${of.label ? `, ${name(of.label)}` : ''}`;
        const { allocation } = of;
        if (allocation === null) return element('p', { class: 'neighbor' }, text);
        const link = button(text, 'Show this block', () =>
            lane.store.set({ selected: { allocation, second: lane.second } }),
        );
        link.className = 'link';
        return element('p', { class: 'neighbor' }, link);
    }

    #title(text: string): HTMLElement {
        const close = button('×', 'Close (Escape)', () => this.lanes[0].store.set({ selected: null }));
        close.className = 'close';
        return element('div', { class: 'title' }, element('h2', {}, ...breakable(name(text, 200))), close);
    }
}

function heading(text: string): HTMLElement {
    return element('h3', {}, text);
}

function list(facts: readonly (readonly [string, string])[]): HTMLElement {
    return element('dl', {}, ...facts.flatMap(([key, value]) => [element('dt', {}, key), element('dd', {}, value)]));
}

function framesOf(lane: Lane, labels: readonly string[]): Promise<Frame[]> {
    return lane.recording.client.ask('frames', [lane.device.device, [...labels]]);
}

/** The user's own frames first, since these can be changed; then all frames in their order. */
function stack(frames: readonly Frame[]): HTMLElement {
    const item = (frame: Frame) => {
        const made = element('li', frame.own ? { class: 'own' } : {}, ...breakable(name(frame.label, 200)));
        made.title = name(frame.path, 1000);
        withLine(made, frame);
        return made;
    };
    const own = frames.filter((frame) => frame.own);
    if (own.length === 0 || own.length === frames.length) return more(frames.map(item));
    const all = element('details', {}, element('summary', {}, `all ${frames.length} frames`), more(frames.map(item)));
    return element('div', {}, more(own.map(item)), all);
}

/** A list whose rest is shown on request: a stack may have thousands of frames. */
function more(items: HTMLElement[]): HTMLElement {
    const shown = element('ol', { class: 'stack' }, ...items.slice(0, FRAMES));
    const rest = items.slice(FRAMES);
    if (rest.length === 0) return shown;
    const next = button(`${whole(rest.length)} more`, 'Show the rest of the stack', () => {
        shown.append(...rest.slice(0, 5000));
        next.remove();
    });
    return element('div', {}, shown, next);
}
