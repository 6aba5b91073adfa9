/** Every entry as a row of a list, tied to the cursor: how the program got to this point, entry by entry. */

import type { Event } from '../engine/engine.d.ts';
import { Latest } from './client.ts';
import { button, element } from './dom.ts';
import { bytes, duration, entry, name, typedBytes, whole } from './format.ts';
import type { Lane } from './lane.ts';
import { lastUpTo } from './rising.ts';
import { LISTED, type State, touches } from './state.ts';
import { stackLines, type Tip } from './tip.ts';
import type { View } from './view.ts';

/** The height of a line in pixels; a row has one line, or two in a narrow window. */
const LINE = 18;
const narrow = matchMedia('(max-width: 700px)');
/** Browsers limit the height of elements to some million pixels: the rows of longer lists are scrolled in larger steps. */
const HIGHEST = 8e6;
/** Number of rows above and below the visible ones that are prepared. */
const MARGIN = 12;
/** Milliseconds between two rows during playback. */
const BEAT = 80;

/** What the list can be limited to: its name, and its actions. */
const ACTIONS: Record<string, readonly [name: string, actions: readonly string[]]> = {
    all: ['all entries', []],
    allocations: ['allocations', ['alloc']],
    frees: ['frees', ['free_requested', 'free_completed']],
    segments: ['segments', ['segment_alloc', 'segment_free', 'segment_map', 'segment_unmap']],
    failed: ['failed requests', ['oom']],
};

export class EventsView implements View {
    readonly tab = 'events';
    readonly title = 'Events';
    readonly drawn = [];
    readonly panel = element('div', { class: 'panel events' });

    #lane: Lane;
    /** The listed entries. */
    #listed: Uint32Array = new Uint32Array();
    /** Updates the filters. */
    #update: (state: Readonly<State>) => void = () => {};
    #stale = true;
    #listing = new Latest();
    #drawing = new Latest();
    #choosing = new Latest();
    #playing = 0;
    /** The content of the prepared rows. */
    #shown: readonly Event[] = [];

    readonly #count = element('output', { class: 'note' });
    readonly #play = button('▶', 'Play: go from entry to entry', () => this.#toggle());
    readonly #space = element('div', { class: 'space' });
    readonly #none = element('p', { class: 'note', hidden: '' });
    readonly #rows = element('div');
    /** The visible part of the rows: it stays in place while the list is scrolled. */
    readonly #frame = element('div', { class: 'frame' }, this.#none, this.#rows);
    readonly #list = element(
        'div',
        { class: 'list', tabindex: '0', role: 'listbox', 'aria-label': 'Entries' },
        this.#frame,
        this.#space,
    );

    constructor(
        private readonly lanes: readonly Lane[],
        private readonly tip: Tip,
        private readonly fail: (error: unknown) => void,
    ) {
        [this.#lane] = lanes;
        this.panel.append(this.#bar(), this.#list);
        this.#list.addEventListener('scroll', () => this.#draw());
        this.#list.addEventListener('keydown', (event) => this.#press(event));
        this.#list.addEventListener('pointermove', (event) => this.#hover(event));
        this.#list.addEventListener('pointerleave', () => tip.hide());
        this.#list.addEventListener('click', (event) => {
            const row = (event.target as HTMLElement).closest<HTMLElement>('[data-place]');
            if (row) this.#go(Number(row.dataset.place));
        });
        const { store } = lanes[0];
        new ResizeObserver(() => {
            this.#frame.style.height = `${this.#list.clientHeight}px`;
            this.#measure();
            this.#draw();
        }).observe(this.#list);
        store.gone.addEventListener('abort', () => this.#stop());
        store.subscribe((state, changed) => {
            if (touches(changed, 'device', 'query', 'found', 'listed', 'least')) this.#stale = true;
            if (touches(changed, 'listed', 'least')) this.#update(state);
            if (state.tab !== 'events') {
                this.#stop();
                return;
            }
            if (this.#stale) this.#fetch();
            else if (touches(changed, 'at', 'at2')) this.#follow();
        });
    }

    show(): void {
        if (this.#stale) this.#fetch();
        else this.#follow();
    }

    #bar(): HTMLElement {
        const actions = element('select', { 'aria-label': 'Actions' });
        const { store } = this.lanes[0];
        for (const value of LISTED) actions.append(element('option', { value }, ACTIONS[value][0]));
        actions.addEventListener('change', () => store.set({ listed: actions.value }));
        const least = element('input', {
            type: 'search',
            placeholder: 'minimum size, such as 1 MiB',
            'aria-label': 'Minimum size',
            spellcheck: 'false',
        });
        least.addEventListener('input', () => {
            const typed = typedBytes(least.value);
            least.setAttribute('aria-invalid', String(typed === null));
            if (typed !== null) store.set({ least: typed });
        });
        // A link also sets the filters.
        this.#update = ({ listed, least: count }) => {
            actions.value = listed;
            if (typedBytes(least.value) !== count) least.value = count === 0 ? '' : bytes(count);
        };
        this.#update(store.state);
        const step = (sign: number) => () => this.#go(this.#place() + sign);
        const steps = element(
            'span',
            { class: 'group', role: 'group', 'aria-label': 'Steps' },
            button('◂', 'Previous entry (↑)', step(-1)),
            this.#play,
            button('▸', 'Next entry (↓)', step(1)),
        );
        const parts = [steps, actions, least, this.#count];
        if (this.lanes.length > 1) {
            const of = element('select', { 'aria-label': 'Recording' });
            this.lanes.forEach((lane, at) => of.append(element('option', { value: String(at) }, lane.letter)));
            of.addEventListener('change', () => {
                this.#lane = this.lanes[Number(of.value)];
                this.#fetch();
            });
            parts.unshift(of);
        }
        return element('div', { class: 'tools', role: 'toolbar', 'aria-label': 'Event filters' }, ...parts);
    }

    /** Requests the listed entries. */
    #fetch(): void {
        this.#stale = false;
        this.#listing.run(async () => {
            const lane = this.#lane;
            const query = lane.problem === null ? lane.store.state.query : '';
            const { device, entries } = lane.device;
            try {
                const { listed, least } = lane.store.state;
                const actions = [...ACTIONS[listed][1]];
                this.#listed = await lane.recording.client.ask('listed', [device, actions, least, query]);
                const all = this.#listed.length === entries ? '' : ` of ${whole(entries)}`;
                this.#count.textContent = `${whole(this.#listed.length)}${all} entries`;
                this.#none.hidden = this.#listed.length > 0;
                this.#none.textContent = entries === 0 ? 'No history was recorded.' : 'No entry matches.';
                this.#measure();
                this.#follow();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** Height of a row in pixels. */
    get #high(): number {
        return narrow.matches ? 2 * LINE : LINE;
    }

    /** The row of the cursor: the entry that has just happened, or the last one listed before it. */
    #place(): number {
        return lastUpTo(this.#listed, this.#lane.at - 1);
    }

    /** Sets the height to that of all rows. */
    #measure(): void {
        this.#space.style.height = `${Math.min(this.#listed.length * this.#high, HIGHEST)}px`;
    }

    /** How many rows fit, and how many pixels of scrolling a row takes if the rows are too many for one each. */
    #scale(): { fit: number; each: number } {
        const fit = Math.max(1, Math.floor(this.#list.clientHeight / this.#high));
        const hidden = Math.max(0, this.#listed.length - fit);
        const pixels = this.#list.scrollHeight - this.#list.clientHeight;
        return { fit, each: hidden > 0 ? pixels / hidden : this.#high };
    }

    /** Scrolls to the cursor unless it is visible. */
    #follow(): void {
        const place = this.#place();
        const { fit, each } = this.#scale();
        const first = Math.round(this.#list.scrollTop / each);
        if (place < first || place >= first + fit) {
            this.#list.scrollTop = Math.max(0, place - Math.floor(fit / 2)) * each;
        }
        this.#draw();
    }

    #draw(): void {
        if (this.lanes[0].store.state.tab !== 'events') return;
        this.#drawing.run(async () => {
            const { fit, each } = this.#scale();
            const first = Math.round(this.#list.scrollTop / each);
            const start = Math.max(0, first - MARGIN);
            const wanted = this.#listed.slice(start, first + fit + MARGIN);
            const lane = this.#lane;
            try {
                this.#shown = await lane.recording.client.ask('events', [lane.device.device, wanted]);
            } catch (error) {
                this.fail(error);
                return;
            }
            const chosen = this.#place();
            this.#rows.style.transform = `translateY(${(start - first) * this.#high}px)`;
            const rows = this.#shown.map((event, at) => this.#row(event, start + at, start + at === chosen));
            this.#rows.replaceChildren(...rows);
            this.#list.setAttribute('aria-activedescendant', chosen < 0 ? '' : `event-${chosen}`);
        });
    }

    #row(event: Event, place: number, isChosen: boolean): HTMLElement {
        const { recording, device, store } = this.#lane;
        const time = recording.figures.has_times ? duration(recording.x(device.device, event.entry + 1, 'time')) : '';
        const pool = event.pool === null || event.pool === 'default' ? '' : name(event.pool, 30);
        const cells: (readonly [kind: string, text: string])[] = [
            ['number', whole(event.entry)],
            ['number', time],
            ['action', event.action],
            ['number', bytes(event.bytes)],
            ['address', event.address ?? (event.device_free === null ? '' : `${bytes(event.device_free)} free`)],
            ['number stream', event.stream === null ? '' : `stream ${event.stream}`],
            ['pool', pool],
            ['site', name(event.site, 160)],
        ];
        const row = element(
            'div',
            {
                class: event.action === 'oom' ? 'line alarm' : `line ${event.action}`,
                role: 'option',
                id: `event-${place}`,
                'data-place': String(place),
                'data-entry': String(event.entry),
                'aria-selected': String(isChosen),
            },
            ...cells.map(([kind, text]) => element('span', { class: kind }, text)),
        );
        if (event.partner !== null) {
            const { partner } = event;
            const isFreed = event.action === 'alloc';
            const title = `Go to the entry that ${isFreed ? 'frees' : 'allocates'} it`;
            const jump = button(`${isFreed ? 'freed' : 'allocated'} at ${whole(partner - 1)}`, title, () => {
                this.#lane.at = partner;
                store.set({ selected: { allocation: event.allocation!, second: this.#lane.second } });
            });
            jump.className = 'link';
            jump.tabIndex = -1;
            jump.addEventListener('click', (clicked) => clicked.stopPropagation());
            row.append(jump);
        }
        return row;
    }

    /** Moves the cursor to a row, and shows its details. */
    #go(place: number): void {
        const lane = this.#lane;
        const number = this.#listed[Math.max(0, Math.min(this.#listed.length - 1, place))];
        if (number === undefined) return;
        lane.at = number + 1;
        this.#choosing.run(async () => {
            try {
                const [event] = await lane.recording.client.ask('events', [lane.device.device, Uint32Array.of(number)]);
                const { second } = lane;
                const { allocation } = event;
                lane.store.set({ selected: allocation === null ? { entry: number, second } : { allocation, second } });
            } catch (error) {
                this.fail(error);
            }
        });
    }

    #press(event: KeyboardEvent): void {
        const { fit } = this.#scale();
        const steps: Record<string, number> = { ArrowUp: -1, ArrowDown: 1, PageUp: -fit, PageDown: fit };
        const ends: Record<string, number> = { Home: 0, End: this.#listed.length - 1 };
        const place = event.key in steps ? this.#place() + steps[event.key] : ends[event.key];
        if (place === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        this.#go(place);
    }

    #toggle(): void {
        if (this.#playing !== 0) {
            this.#stop();
            return;
        }
        this.#play.textContent = '■';
        this.#play.title = 'Stop';
        this.#playing = window.setInterval(() => {
            const next = this.#place() + 1;
            if (next >= this.#listed.length) this.#stop();
            else this.#lane.at = this.#listed[next] + 1;
        }, BEAT);
    }

    #stop(): void {
        clearInterval(this.#playing);
        this.#playing = 0;
        this.#play.textContent = '▶';
        this.#play.title = 'Play: go from entry to entry';
    }

    /** Shows the stack of a row when the pointer rests on it. */
    #hover({ target, clientX, clientY }: PointerEvent): void {
        const row = (target as HTMLElement).closest<HTMLElement>('[data-entry]');
        const event = this.#shown.find((each) => String(each.entry) === row?.dataset.entry);
        if (!event) {
            this.tip.hide();
            return;
        }
        const { recording, device } = this.#lane;
        const lines = [{ text: `${event.action}, ${entry(event.entry + 1)}` }];
        this.tip.show(clientX, clientY, lines, async () => stackLines(await recording.client.ask('stack', [device.device, event.entry])));
    }
}
