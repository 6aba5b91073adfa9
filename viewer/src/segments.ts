/** The allocator's segments at the cursor, all to one scale: memory that is in use, pending free, or free. */

import type { Group, SegmentMap } from '../engine/engine.d.ts';
import { choosable } from './chosen.ts';
import { Latest } from './client.ts';
import { ACCENT, ALARM, BACKGROUND, FREE, GRID, mix, MUTED, OTHER, TEXT, type Theme } from './colors.ts';
import { button, element } from './dom.ts';
import { bytes, name, share, whole } from './format.ts';
import type { Lane } from './lane.ts';
import type { Box, Pen } from './pen.ts';
import { type Bar, describe, GAP, type Head, layOut, type Place, ROW } from './places.ts';
import { fitting } from './ribbons.ts';
import { behind, runs } from './runs.ts';
import { Scrolled } from './scrolled.ts';
import { chosenBand, stackedBy, touches } from './state.ts';
import type { Surface } from './surface.ts';
import { theme } from './theme.ts';
import type { Tip } from './tip.ts';
import type { Drawn, View } from './view.ts';

const SIDE = 14;
/** Width of the address and size of a segment with its own row; in a narrow window, of its size. */
const GUTTER = 196;
const NARROW_GUTTER = 72;
/** A block is outlined if it keeps this many free bytes from being released, and more than it holds itself. */
const KEEPS = 1 << 20;
/** Number of rows of all segments at the initial scale. */
const ROWS = 14;
/** The most live blocks that are drawn: more than any recording has. */
const MOST = 10_000_000;

type Segment = SegmentMap['segments'][number];
type Block = Segment['blocks'][number];

/** A block, and its position. */
interface Spot {
    place: Place;
    block: Block;
}

/** The segments of one recording. */
class SegmentPicture implements Drawn {
    readonly surface: Surface;
    readonly #scrolled: Scrolled;
    #latest = new Latest();
    #map: SegmentMap | null = null;
    /** The group of each allocation. */
    #groups = new Map<number, Group>();
    #key = '';
    #places: Place[] = [];
    #heads: Head[] = [];
    #bars: Bar[] = [];
    /** Bytes per row. */
    #row = 1;
    #zoom = 1;
    #hover: Spot | null = null;
    /** Where the selected allocation is; searched when another one is selected or the layout changes. */
    #chosen: { allocation: number; places: readonly Place[]; spot: Spot | null } | null = null;

    constructor(
        host: HTMLElement,
        private readonly lane: Lane,
        private readonly tip: Tip,
        private readonly fail: (error: unknown) => void,
    ) {
        this.#scrolled = new Scrolled(
            host,
            lane.store.gone,
            () => this.paint(this.surface.pen),
            () => this.#layOut(),
        );
        this.surface = this.#scrolled.surface;
        const { canvas } = this.surface;
        choosable(canvas, lane, (step) => this.#next(step));
        canvas.setAttribute('aria-label', 'Segments of the allocator at the cursor; click a block for its stack');
        canvas.addEventListener('pointermove', (event) => this.#point(event));
        canvas.addEventListener('pointerleave', () => {
            this.#hover = null;
            tip.hide();
            this.surface.invalidate();
        });
        canvas.addEventListener('click', () => {
            const allocation = this.#hover?.block.allocation ?? null;
            if (allocation !== null) lane.store.set({ selected: { allocation, second: lane.second } });
        });
        canvas.addEventListener(
            'wheel',
            (event) => {
                if (!event.ctrlKey) return;
                event.preventDefault();
                this.#zoom = Math.max(1, Math.min(256, this.#zoom * Math.exp(-event.deltaY * 0.004)));
                this.#layOut();
                this.surface.invalidate();
            },
            { passive: false },
        );
        lane.store.subscribe((state, changed) => {
            if (state.tab !== 'segments') return;
            if (touches(changed, 'at', 'at2', 'device', 'by', 'tab')) this.fetch();
            if (changed.has('packed')) this.#layOut();
            this.surface.invalidate();
        });
    }

    fetch(): void {
        const { device } = this.lane.device;
        const by = stackedBy(this.lane.store.state.by);
        const key = [device, this.lane.at, by].join();
        if (key === this.#key) return;
        this.#latest.run(async () => {
            try {
                const { client } = this.lane.recording;
                const { at } = this.lane;
                // The live blocks of an instant, as shapes of a single column: the group of each block.
                const [map, live] = await Promise.all([
                    client.ask('segments', [device, at]),
                    client.ask('blocks', [device, 'active', by, 'entry', at, at + 0.5, 1, MOST]),
                ]);
                this.#map = map;
                this.#groups = new Map();
                live.allocations.forEach((allocation, shape) =>
                    this.#groups.set(allocation, live.groups[live.group[shape]]),
                );
                this.#key = key;
                this.#hover = null;
                this.#layOut();
                this.surface.invalidate();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** Puts segments into rows, by use and by address; longer ones take several rows. */
    #layOut(): void {
        const map = this.#map;
        if (!map) return;
        const longest = map.segments.reduce((most, segment) => Math.max(most, segment.bytes), 1);
        const { isPacked } = this;
        const sizes = map.segments.map((segment) => segment.bytes).sort((a, b) => a - b);
        // A row is as long as the longest segment, unless most of the others would be hardly visible.
        const own = Math.min(longest, Math.max(longest / 4, 8 * (sizes[sizes.length >> 1] ?? 0)));
        this.#row = (isPacked ? Math.max(longest / 8, map.reserved_bytes / ROWS, 1) : own) / this.#zoom;
        // A pixel between two of them, so that they can be distinguished.
        const gap = (1.5 * this.#row) / this.#width;
        const { places, heads, bars, height } = layOut(map, this.#row, gap, isPacked);
        [this.#places, this.#heads, this.#bars] = [places, heads, bars];
        this.#scrolled.height = height;
    }

    /** Whether segments follow each other, instead of having their own rows. */
    private get isPacked(): boolean {
        return this.lane.store.state.packed;
    }

    /** Where rows start, and how wide they are. */
    get #left(): number {
        if (this.isPacked) return SIDE;
        return SIDE + (this.surface.width < 600 ? NARROW_GUTTER : GUTTER);
    }

    get #width(): number {
        return Math.max(10, this.surface.width - SIDE - this.#left);
    }

    /** The visible rectangles of a range of a segment, one in each of its rows. */
    #boxes(
        place: { start: number; y: number },
        offset: number,
        size: number,
        each: (box: { x: number; y: number; width: number; height: number }) => void,
    ): void {
        const width = this.#width;
        let from = place.start + offset;
        const end = from + size;
        while (from < end) {
            const row = Math.floor(from / this.#row);
            const to = Math.min(end, (row + 1) * this.#row);
            const y = place.y + row * (ROW + GAP) - this.#scrolled.offset;
            const left = ((from - row * this.#row) / this.#row) * width;
            if (y > -ROW && y < this.surface.height)
                each({ x: this.#left + left, y, width: ((to - from) / this.#row) * width, height: ROW });
            if (to <= from) break;
            from = to;
        }
    }

    paint(pen: Pen): void {
        const shown = theme();
        const { width, height } = this.surface;
        pen.rect({ x: 0, y: 0, width, height }, BACKGROUND[shown]);
        const map = this.#map;
        if (!map) return;
        if (map.segments.length === 0)
            pen.text(SIDE, 22, 'Nothing is reserved here.', { fill: MUTED[shown], size: 12 });
        for (const { text, y, isAlarm } of this.#heads) {
            const style = { fill: isAlarm ? ALARM[shown] : MUTED[shown], size: 11.5, bold: isAlarm ?? false };
            pen.text(SIDE, y + 14 - this.#scrolled.offset, fitting(pen, name(text, 400), width - 2 * SIDE, style), style);
        }
        for (const { isRequest, bytes: size, ...place } of this.#bars) {
            this.#boxes(place, 0, size, (box) => {
                pen.rect(box, isRequest ? ALARM[shown] : FREE[shown], isRequest ? 0.35 : 1);
                pen.outline(inner(box), { stroke: isRequest ? ALARM[shown] : MUTED[shown] });
            });
        }
        const { offset } = this.#scrolled;
        const scale = this.#row / this.#width;
        for (const place of this.#places) {
            const rows = Math.ceil((place.start + place.segment.bytes) / this.#row);
            if (place.y - offset > height || place.y + rows * (ROW + GAP) - offset < 0) continue;
            this.#name(pen, place, shown);
            this.#boxes(place, 0, place.segment.bytes, (box) => pen.rect(box, FREE[shown]));
            place.runs ??= runs(place.segment.blocks, scale);
            const [first, end] = this.#seen(place);
            const holders: Box[] = [];
            for (let at = behind(place.runs, first); at < place.runs.length; at++) {
                const { block, offset: start, bytes: size } = place.runs[at];
                if (start >= end) break;
                const fill = this.#fill(block, shown);
                if (fill === null) continue;
                this.#boxes(place, start, size, (box) => {
                    pen.rect({ ...box, width: Math.max(0.4, box.width - (box.width > 4 ? 1 : 0)) }, fill);
                    if (block.state === 'pending_free')
                        pen.rect({ ...box, y: box.y + ROW - 4, height: 4 }, TEXT[shown]);
                    if (keepsMuch(block)) holders.push(inner(box));
                });
            }
            this.#boxes(place, 0, place.segment.bytes, (box) =>
                pen.outline({ x: box.x, y: box.y + 0.5, width: box.width, height: ROW - 1 }, { stroke: GRID[shown] }),
            );
            // On top of the edges of their segment.
            // A line between two others of another color stands out from every block. It is no failure, so it is not red.
            for (const box of holders) {
                pen.outline(box, { stroke: BACKGROUND[shown], width: 3.5 });
                pen.outline(box, { stroke: TEXT[shown], width: 1.5 });
            }
        }
        const outline = (spot: Spot | null, style: { stroke: string; width: number }) => {
            if (spot) this.#boxes(spot.place, spot.block.offset, spot.block.bytes, (box) => pen.outline(box, style));
        };
        outline(this.#choice(), { stroke: ACCENT[shown], width: 2.5 });
        if (pen === this.surface.pen) outline(this.#hover, { stroke: TEXT[shown], width: 1.5 });
    }

    /** The address and size of a segment with its own row. */
    #name(pen: Pen, { segment, y }: Place, shown: Theme): void {
        if (this.isPacked) return;
        const at = y + 13 - this.#scrolled.offset;
        const style = { fill: MUTED[shown], size: 11, mono: true } as const;
        pen.text(this.#left - 8, at, bytes(segment.bytes), { ...style, anchor: 'end' });
        if (this.#left > SIDE + NARROW_GUTTER) pen.text(SIDE, at, segment.address, style);
    }

    /** The bytes of a segment in the visible rows. */
    #seen({ y, start }: Place): [number, number] {
        const top = this.#scrolled.offset - y;
        const first = Math.max(0, Math.floor(top / (ROW + GAP)));
        const last = Math.floor((top + this.surface.height) / (ROW + GAP));
        return [first * this.#row - start, (last + 1) * this.#row - start];
    }

    /** Where the selected allocation is. */
    #choice(): Spot | null {
        const { selected } = this.lane.store.state;
        if (!selected || !('allocation' in selected) || selected.second !== this.lane.second) return null;
        const { allocation } = selected;
        const places = this.#places;
        if (this.#chosen?.allocation !== allocation || this.#chosen.places !== places) {
            let spot: Spot | null = null;
            for (const place of places) {
                const block = place.segment.blocks.find((each) => each.allocation === allocation);
                if (block) spot = { place, block };
            }
            this.#chosen = { allocation, places, spot };
        }
        return this.#chosen.spot;
    }

    /** Selects the allocation after or before the selected one, by address, and shows it. */
    #next(step: 1 | -1): void {
        const { store, second } = this.lane;
        const chosen = this.#choice();
        const places = step > 0 ? this.#places : this.#places.toReversed();
        const from = chosen ? places.indexOf(chosen.place) : 0;
        for (const place of places.slice(from)) {
            const { blocks } = place.segment;
            let at = step > 0 ? 0 : blocks.length - 1;
            if (chosen?.place === place) at = blocks.indexOf(chosen.block) + step;
            for (let block = blocks[at]; block; block = blocks[(at += step)]) {
                const { allocation } = block;
                if (allocation === null) continue;
                store.set({ selected: { allocation, second } });
                const row = Math.floor((place.start + block.offset) / this.#row);
                this.#scrolled.reveal(place.y + row * (ROW + GAP), ROW);
                return;
            }
        }
    }

    /** The color of a block; `null` for free blocks. */
    #fill(block: Block, shown: Theme): string | null {
        if (block.state === 'inactive') return null;
        const { found, store } = this.lane;
        const group = block.allocation === null ? null : this.#groups.get(block.allocation);
        const color = group ? group[shown] : OTHER[shown];
        const label = chosenBand(store.state);
        const isMeant = found
            ? block.allocation !== null && found.has(block.allocation)
            : label === null || group?.label === label;
        return isMeant ? color : mix(color, BACKGROUND[shown], 0.25);
    }

    #point(event: PointerEvent): void {
        const bounds = this.surface.canvas.getBoundingClientRect();
        const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
        this.#hover = this.#under(x, y);
        this.surface.invalidate();
        if (!this.#hover) {
            this.tip.hide();
            return;
        }
        const { block, place } = this.#hover;
        const { segment } = place;
        const group = block.allocation === null ? null : this.#groups.get(block.allocation);
        const state =
            block.state === 'inactive'
                ? 'free'
                : block.state === 'pending_free'
                  ? 'waiting for a stream before it can be reused'
                  : 'in use';
        const used = this.#inUse(segment);
        const { allocation } = block;
        const more = allocation === null ? undefined : () => this.lane.told(allocation, group?.label ?? '');
        const lines = [
            ...(group ? [{ text: name(group.label) + (group.inferred ? ' *' : ''), color: group, strong: true }] : []),
            { text: `${bytes(block.bytes)} (${whole(block.bytes)}), ${state}` },
            { text: `${bytes(block.offset)} into the segment ${segment.address}` },
            { text: `${bytes(segment.bytes)}, ${share(used, segment.bytes)} in use; ${name(describe(segment), 160)}` },
            ...(block.keeps > 0 ? [{ text: `keeps ${bytes(block.keeps)} of free memory from being released` }] : []),
        ];
        this.tip.show(event.clientX, event.clientY, lines, more);
    }

    #used = new WeakMap<Segment, number>();

    /** Bytes of a segment in use: summed once. */
    #inUse(segment: Segment): number {
        let used = this.#used.get(segment);
        if (used === undefined) {
            used = segment.blocks.reduce((sum, each) => sum + (each.state === 'inactive' ? 0 : each.bytes), 0);
            this.#used.set(segment, used);
        }
        return used;
    }

    #under(x: number, y: number): Spot | null {
        const width = this.#width;
        for (const place of this.#places) {
            const from = y + this.#scrolled.offset - place.y;
            const row = Math.floor(from / (ROW + GAP));
            if (row < 0 || from - row * (ROW + GAP) > ROW) continue;
            const at = ((x - this.#left) / width + row) * this.#row - place.start;
            if (x < this.#left || x > this.#left + width || at < 0 || at >= place.segment.bytes) continue;
            const { blocks } = place.segment;
            const block = blocks[behind(blocks, at)];
            if (block && block.offset <= at) return { place, block };
        }
        return null;
    }
}

/** Whether a block keeps more free memory from being released than it holds. */
function keepsMuch({ keeps, bytes: size }: Block): boolean {
    return keeps >= KEEPS && keeps > size;
}

/** The center of the edge of a box, where a line of one pixel is sharp. */
function inner({ x, y, width, height }: Box): Box {
    return { x: x + 0.5, y: y + 0.5, width: Math.max(1, width - 1), height: height - 1 };
}

export class SegmentsView implements View {
    readonly tab = 'segments';
    readonly title = 'Segments';
    readonly panel = element('div', { class: 'panel segments' });
    readonly drawn: readonly SegmentPicture[];

    constructor(lanes: readonly Lane[], tip: Tip, fail: (error: unknown) => void) {
        const hosts = lanes.map(() => element('div'));
        this.panel.append(this.#tools(lanes[0]), element('div', { class: 'lanes' }, ...hosts));
        this.drawn = lanes.map((lane, at) => new SegmentPicture(hosts[at], lane, tip, fail));
    }

    /** The layout of segments, and the meaning of colors and lines. */
    #tools({ store }: Lane): HTMLElement {
        const ways = [
            button('rows', 'A row for each segment, with its address and size', () => store.set({ packed: false })),
            button('packed', 'Segments one after the other', () => store.set({ packed: true })),
        ];
        const update = () =>
            ways.forEach((way, at) => way.setAttribute('aria-pressed', String(store.state.packed === (at === 1))));
        update();
        store.subscribe((_, changed) => {
            if (changed.has('packed')) update();
        });
        const key = [
            element('span', { class: 'legend free' }, 'free'),
            element('span', { class: 'legend pending' }, 'waiting for a stream'),
            element('span', { class: 'legend keeps' }, 'keeps more free memory reserved than it holds'),
        ];
        const group = element('span', { class: 'group', role: 'group', 'aria-label': 'Layout of segments' }, ...ways);
        return element('div', { class: 'tools' }, group, ...key);
    }

    show(): void {
        for (const each of this.drawn) {
            each.fetch();
            each.surface.invalidate();
        }
    }
}
