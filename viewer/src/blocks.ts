/** Every allocation, or segment, as a shape over time, stacked: the largest ones individually, the rest on top of them. */

import type { Blocks as Answer } from '../engine/engine.d.ts';
import { lookAt } from './aligned.ts';
import { chart } from './chart.ts';
import { Latest } from './client.ts';
import { ACCENT, BACKGROUND, mix, MUTED, OTHER, type Theme } from './colors.ts';
import { element } from './dom.ts';
import { bytes, entry, name, whole } from './format.ts';
import type { Lane } from './lane.ts';
import type { Pen } from './pen.ts';
import { drawAxes, fromX, fromY, isInside, LEFT, type Plot, RIGHT, toX, toY } from './plot.ts';
import { endRange, RangeDrag } from './range.ts';
import { Raster } from './raster.ts';
import { paintShapes, pieces, shapeAt, stackAt } from './shapes.ts';
import { around, column, covers, type Stretch } from './stacked.ts';
import { chosenBand, type Selection, stackedBy } from './state.ts';
import type { Surface } from './surface.ts';
import { theme } from './theme.ts';
import { stackLines, type Tip, type TipLine } from './tip.ts';
import type { Drawn, View } from './view.ts';

/** The most shapes that are drawn individually: more would be thinner than a pixel. */
const SHAPES = 2000;

interface Fetched {
    key: string;
    stretch: Stretch;
    blocks: Answer;
    /** Whether the shapes are segments, which make up reserved memory. */
    areSegments: boolean;
    /** The highest point. */
    top: number;
}

/** The shapes of one recording. */
class Shapes implements Drawn {
    readonly surface: Surface;
    #latest = new Latest(true);
    #fetched: Fetched | null = null;
    readonly #raster = new Raster();
    readonly #range: RangeDrag;
    #hover: { x: number; y: number } | null = null;

    constructor(
        host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly lane: Lane,
        /** The shapes of all lanes, which share their scales. */
        private readonly all: () => readonly Shapes[],
        private readonly tip: Tip,
        private readonly fail: (error: unknown) => void,
    ) {
        const label = `Allocations, or segments, of ${name(lane.recording.name)} over time, stacked; click one for its stack`;
        this.#range = new RangeDrag(lane, tip, () => this.plot(), () => this.surface);
        this.surface = chart(host, lanes, lane, label, {
            plot: () => this.plot(),
            draw: () => this.#draw(),
            fetch: () => this.fetch(),
            point: (x, y) => this.#point(x, y),
            click: (x, y) => this.#click(x, y),
            range: this.#range,
            next: (step) => this.#next(step),
        });
        lane.store.subscribe((state) => {
            if (state.tab !== 'blocks') return;
            this.fetch();
            this.surface.invalidate();
        });
    }

    plot(): Plot {
        const { from, to, fit, metric } = this.lane.store.state;
        const box = {
            x: LEFT,
            y: 10,
            width: Math.max(10, this.surface.width - LEFT - RIGHT),
            height: Math.max(10, this.surface.height - 34),
        };
        const highest = (of: Shapes) => (fit && of.#fetched ? of.#fetched.top : of.lane.device.peak[metric].bytes);
        return { box, from, to, top: Math.max(1, ...this.all().map(highest)) * 1.04 };
    }

    fetch(): void {
        const { state } = this.lane.store;
        if (this.surface.width === 0) return;
        const pixels = Math.round(this.plot().box.width * this.surface.ratio);
        const all = this.lane.extent();
        const step = (state.to - state.from) / pixels;
        const { metric } = state;
        const key = [state.device, state.axis, metric, stackedBy(state.by), step.toPrecision(9)].join();
        const known = this.#fetched;
        if (known && known.key === key && covers(known.stretch, state.from, state.to, all)) return;
        this.#latest.run(async () => {
            try {
                const stretch = around(state.from, state.to, pixels, all);
                const range = [state.axis, stretch.from, stretch.to, stretch.columns] as const;
                const { device } = this.lane.device;
                const blocks = await this.lane.recording.client.ask('blocks', [
                    device,
                    metric,
                    stackedBy(state.by),
                    ...range,
                    SHAPES,
                ]);
                const top = blocks.totals.reduce((most, total) => Math.max(most, total), 1);
                this.#fetched = { key, stretch, blocks, areSegments: metric === 'reserved', top };
                for (const each of this.all()) each.surface.invalidate();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    paint(pen: Pen): void {
        const shown = theme();
        const plot = this.plot();
        pen.rect({ x: 0, y: 0, width: this.surface.width, height: this.surface.height }, BACKGROUND[shown]);
        if (this.#fetched) {
            if (pen === this.surface.pen) this.#blit(plot, this.#fetched, shown);
            else this.#exact(pen, plot, this.#fetched, shown);
        }
        drawAxes(pen, plot, this.lane.recording.figures.folds, this.lane.store.state.axis, shown);
        this.#range.paint(pen, plot, shown);
        pen.within(plot.box, () => {
            const x = Math.round(toX(plot, this.lane.x(this.lane.at))) - 0.5;
            pen.line([x, plot.box.y, x, plot.box.y + plot.box.height], { stroke: ACCENT[shown] });
            this.#outline(pen, plot, this.#chosen(), ACCENT[shown], 2);
        });
        if (this.lanes.length > 1)
            pen.text(LEFT + 6, 22, this.lane.letter, { fill: MUTED[shown], bold: true });
    }

    #draw(): void {
        this.paint(this.surface.pen);
        const under = this.#under();
        if (!under) return;
        const plot = this.plot();
        const shown = theme();
        this.surface.pen.within(plot.box, () =>
            this.#outline(this.surface.pen, plot, under.shape, shown === 'light' ? '#000000' : '#FFFFFF', 1),
        );
    }

    /** The shapes that are searched for or selected. */
    #meant({ blocks, areSegments }: Fetched): (shape: number) => boolean {
        const { found, store } = this.lane;
        // The search finds allocations, and a segment contains many of them.
        if (found && !areSegments) return (shape) => found.has(blocks.allocations[shape]);
        const label = chosenBand(store.state);
        if (label === null || !blocks.groups.some((group) => group.label === label)) return () => true;
        return (shape) => blocks.groups[blocks.group[shape]].label === label;
    }

    #blit(plot: Plot, fetched: Fetched, shown: Theme): void {
        const { blocks, stretch } = fetched;
        const { state } = this.lane.store;
        const height = Math.round(plot.box.height * this.surface.ratio);
        const look = [shown, height, plot.top, state.found, chosenBand(state) ?? ''].join();
        this.#raster.show(blocks, look, stretch.columns, height, (pixels) =>
            paintShapes(pixels, blocks, height, plot.top, shown, this.#meant(fetched)),
        );
        this.#raster.blit(this.surface, plot, stretch);
    }

    /** Each piece as a rectangle, for pictures that are saved. */
    #exact(pen: Pen, plot: Plot, fetched: Fetched, shown: Theme): void {
        const { blocks, stretch } = fetched;
        const isMeant = this.#meant(fetched);
        const width = (stretch.to - stretch.from) / stretch.columns;
        const x = (at: number) => toX(plot, stretch.from + at * width);
        pen.within(plot.box, () => {
            for (let shape = 0; shape < blocks.allocations.length; shape++) {
                const color = blocks.groups[blocks.group[shape]][shown];
                const fill = isMeant(shape) ? color : mix(color, BACKGROUND[shown], 0.25);
                pieces(blocks, shape, ({ from, to, offset }) => {
                    if (x(to) < plot.box.x || x(from) > plot.box.x + plot.box.width) return;
                    const y = toY(plot, offset + blocks.bytes[shape]);
                    pen.rect({ x: x(from), y, width: x(to) - x(from), height: toY(plot, offset) - y }, fill);
                });
            }
            for (let at = 0; at < stretch.columns; at++) {
                if (blocks.rest[at] === 0 || x(at + 1) < plot.box.x || x(at) > plot.box.x + plot.box.width) continue;
                const y = toY(plot, blocks.totals[at]);
                const height = toY(plot, blocks.totals[at] - blocks.rest[at]) - y;
                pen.rect({ x: x(at), y, width: x(at + 1) - x(at), height }, mix(OTHER[shown], BACKGROUND[shown], 0.6));
            }
        });
    }

    /** The selected shape; -1 if there is none. */
    #chosen(): number {
        const { selected } = this.lane.store.state;
        if (!this.#fetched || !selected || !('second' in selected) || selected.second !== this.lane.second) return -1;
        const { blocks, areSegments } = this.#fetched;
        if ('allocation' in selected) return areSegments ? -1 : blocks.allocations.indexOf(selected.allocation);
        return areSegments ? blocks.made.indexOf(selected.entry + 1) : -1;
    }

    /** What selecting a shape selects: an allocation, or the entry that created a segment, unless it is from before the recording. */
    #selection(shape: number): Selection {
        if (!this.#fetched || shape < 0) return null;
        const { blocks, areSegments } = this.#fetched;
        const { second } = this.lane;
        if (!areSegments) return { allocation: blocks.allocations[shape], second };
        return blocks.made[shape] === 0 ? null : { entry: blocks.made[shape] - 1, second };
    }

    /** What more is known about a shape. */
    #told(shape: number): (() => Promise<TipLine[]>) | undefined {
        const selection = this.#selection(shape);
        const { lane } = this;
        const label = this.#fetched?.blocks.groups[this.#fetched.blocks.group[shape]]?.label ?? '';
        if (selection && 'allocation' in selection) return () => lane.told(selection.allocation, label);
        if (selection && 'entry' in selection)
            return async () => stackLines(await lane.recording.client.ask('stack', [lane.device.device, selection.entry]));
        return undefined;
    }

    #outline(pen: Pen, plot: Plot, shape: number, stroke: string, width: number): void {
        const fetched = this.#fetched;
        if (!fetched || shape < 0) return;
        const { blocks, stretch } = fetched;
        const step = (stretch.to - stretch.from) / stretch.columns;
        const [above, below]: [number[], number[]] = [[], []];
        pieces(blocks, shape, ({ from, to, offset }) => {
            const [left, right] = [toX(plot, stretch.from + from * step), toX(plot, stretch.from + to * step)];
            const [y, base] = [toY(plot, offset + blocks.bytes[shape]), toY(plot, offset)];
            above.push(left, y, right, y);
            below.push(base, left, base, right);
        });
        if (above.length > 0) pen.line([...above, ...below.reverse(), above[0], above[1]], { stroke, width });
    }

    #under(): { shape: number; at: number } | null {
        const plot = this.plot();
        const fetched = this.#fetched;
        if (!this.#hover || !fetched || !isInside(plot.box, this.#hover.x, this.#hover.y)) return null;
        const at = column(fetched.stretch, fromX(plot, this.#hover.x));
        if (at < 0) return null;
        return { shape: shapeAt(fetched.blocks, at, fromY(plot, this.#hover.y)), at };
    }

    #point(x: number, y: number): void {
        this.#hover = x < 0 ? null : { x, y };
        this.surface.invalidate();
        const under = this.#under();
        const fetched = this.#fetched;
        if (!under || !fetched) {
            this.tip.hide();
            return;
        }
        const { blocks, areSegments } = fetched;
        const lines = [];
        if (under.shape >= 0) {
            const group = blocks.groups[blocks.group[under.shape]];
            lines.push({ text: name(group.label) + (group.inferred ? ' *' : ''), color: group, strong: true });
            lines.push({
                text: `${bytes(blocks.bytes[under.shape])} (${whole(blocks.bytes[under.shape])}), ${this.#called(under.shape)}`,
            });
        } else if (blocks.rest[under.at] > 0) {
            const what = areSegments ? 'segments' : 'allocations';
            lines.push({ text: `${bytes(blocks.rest[under.at])} in ${what} too small or too short to be drawn` });
        }
        lines.push({ text: `${entry(blocks.instants[under.at])}: ${bytes(blocks.totals[under.at])}` });
        const bounds = this.surface.canvas.getBoundingClientRect();
        this.tip.show(bounds.left + x, bounds.top + y, lines, this.#told(under.shape));
    }

    /** The name of a shape: its allocation, or the start of its segment. */
    #called(shape: number): string {
        const { blocks, areSegments } = this.#fetched!;
        if (!areSegments) return `allocation ${blocks.allocations[shape]}`;
        const made = blocks.made[shape];
        return made === 0 ? 'a segment from before the recording' : `a segment since ${entry(made)}`;
    }

    /** Selects the shape below or above the selected one, at the cursor. */
    #next(step: 1 | -1): void {
        if (!this.#fetched) return;
        const { blocks, stretch } = this.#fetched;
        const there = stackAt(blocks, column(stretch, this.lane.x(this.lane.at)));
        if (there.length === 0) return;
        const at = there.indexOf(this.#chosen());
        const outermost = step > 0 ? there[there.length - 1] : there[0];
        this.lane.store.set({ selected: this.#selection(at < 0 ? outermost : (there[at - step] ?? there[at])) });
    }

    #click(x: number, y: number): void {
        this.#hover = { x, y };
        const under = this.#under();
        if (!under || !this.#fetched) return;
        const { blocks } = this.#fetched;
        endRange(this.lane);
        lookAt(this.lanes, this.lane, blocks.instants[under.at]);
        this.lane.store.set({ selected: this.#selection(under.shape) });
    }
}

export class BlocksView implements View {
    readonly tab = 'blocks';
    readonly title = 'Blocks';
    readonly panel = element('div', { class: 'panel blocks lanes' });
    readonly drawn: readonly Shapes[];

    constructor(lanes: readonly Lane[], tip: Tip, fail: (error: unknown) => void) {
        const hosts = lanes.map(() => element('div'));
        this.panel.append(...hosts);
        this.drawn = lanes.map((lane, at) => new Shapes(hosts[at], lanes, lane, () => this.drawn, tip, fail));
    }

    show(): void {
        for (const each of this.drawn) {
            each.fetch();
            each.surface.invalidate();
        }
    }
}
