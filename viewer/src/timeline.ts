/** Live memory over time: bands of its groups, reserved memory, the limit, failed requests, annotations. */

import type { Bands, Curve, FailedRequest, Metric } from '../engine/engine.d.ts';
import { lookAt } from './aligned.ts';
import { chart } from './chart.ts';
import { Latest } from './client.ts';
import { ACCENT, ALARM, BACKGROUND, MUTED, TEXT, type Theme } from './colors.ts';
import { bound, bytes, counted, duration, entryOf, name, share, whole } from './format.ts';
import { byId } from './dom.ts';
import { devicesOf, extent, type Lane, missing, top } from './lane.ts';
import { showLegend } from './legend.ts';
import { clamped } from './navigate.ts';
import type { Pen } from './pen.ts';
import { drawAxes, fromX, fromY, isInside, LEFT, type Plot, RIGHT, toX, toY } from './plot.ts';
import { predictedCurve, predictedOf } from './predicted.ts';
import { endRange, RangeDrag } from './range.ts';
import { Raster } from './raster.ts';
import { drawRibbons, edgesOf, RIBBON, type Ribbons, ribbons, type Span, spanAt } from './ribbons.ts';
import {
    around,
    bandAt,
    column,
    covers,
    ordered,
    drawBand,
    drawSteps,
    edges,
    paintBands,
    shades,
    type Stretch,
    touching,
} from './stacked.ts';
import { attempt, chosenBand, isTried, stackedBy, type State, touches, TRIED } from './state.ts';
import type { Surface } from './surface.ts';
import { theme } from './theme.ts';
import type { Tip, TipLine } from './tip.ts';
import type { Drawn } from './view.ts';

/** The most bands; the rest is one band. */
const BANDS = 16;
/** Width of a failed request, in pixels. */
const MISSING = 14;

/** The data of a range. */
interface Fetched {
    key: string;
    stretch: Stretch;
    bands: Bands;
    sums: Float64Array;
    reserved: Curve | null;
    /** Reserved memory at the instants of the bands. */
    reservedThen: Float64Array | null;
    /** Bytes of the allocations that the search finds, if there is a search. */
    held: Float64Array | null;
    tried: Simulated;
}

/** The metric, and reserved memory, with what is tried. */
interface Simulated {
    metric: Float64Array | null;
    reserved: Float64Array | null;
}

export class Timeline implements Drawn {
    readonly surface: Surface;
    /** Resolves when the first picture is drawn. */
    readonly ready: Promise<void>;
    #isReady = (): void => {};
    #latest = new Latest(true);
    #near: Fetched | null = null;
    /** The whole run at a low resolution: visible at the edges while panning. */
    #whole: Fetched | null = null;
    #ribbons: Ribbons = [];
    #hover: { x: number; y: number } | null = null;
    readonly #range: RangeDrag;
    readonly #nearRaster = new Raster();
    readonly #wholeRaster = new Raster();

    constructor(
        host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly lane: Lane,
        /** The timelines of all lanes, which share their scales. */
        private readonly all: () => readonly Timeline[],
        private readonly tip: Tip,
        private readonly fail: (error: unknown) => void,
    ) {
        this.ready = new Promise((resolve) => {
            this.#isReady = resolve;
        });
        const label = `Live memory of ${name(lane.recording.name)} over time; keys: question mark for help`;
        this.#range = new RangeDrag(lane, tip, () => this.plot(), () => this.surface);
        this.surface = chart(host, lanes, lane, label, {
            plot: () => this.plot(),
            draw: () => this.#draw(),
            fetch: () => this.fetch(),
            point: (x, y) => this.#point(x, y),
            click: (x, y, event) => this.#click(x, y, event.shiftKey),
            range: this.#range,
        });
        lane.store.subscribe((_, changed) => {
            if (changed.has('device')) this.#ribbons = ribbons(lane);
            if (touches(changed, 'device', 'axis', 'metric', 'by', 'from', 'to', 'found', ...TRIED)) this.fetch();
            this.surface.invalidate();
        });
        this.#ribbons = ribbons(lane);
    }

    plot(): Plot {
        const { from, to, fit } = this.lane.store.state;
        const room = this.#ribbons.length * RIBBON;
        const box = {
            x: LEFT,
            y: 18,
            width: Math.max(10, this.surface.width - LEFT - RIGHT),
            height: Math.max(10, this.surface.height - 40 - room),
        };
        return { box, from, to, top: fit ? Math.max(...this.all().map((each) => each.#seen())) : top(this.lanes) };
    }

    /** The highest visible point. */
    #seen(): number {
        const { from, to } = this.lane.store.state;
        const fetched = this.#near;
        if (!fetched) return top(this.lanes);
        let most = 1;
        for (let at = Math.max(0, column(fetched.stretch, from)); at < fetched.stretch.columns; at++) {
            if (
                fetched.stretch.from + (at / fetched.stretch.columns) * (fetched.stretch.to - fetched.stretch.from) >=
                to
            )
                break;
            most = Math.max(most, fetched.bands.totals[at]);
        }
        return most * 1.06;
    }

    /** Draws again, and also the others if their scale depends on it. */
    #changed(): void {
        for (const each of this.lane.store.state.fit ? this.all() : [this]) each.surface.invalidate();
    }

    /** Requests the visible range and some more around it, unless it is already there. */
    fetch(): void {
        const { state } = this.lane.store;
        const pixels = Math.round(this.plot().box.width * this.surface.ratio);
        if (this.surface.width === 0) return;
        const [first, end] = this.lane.extent();
        const trial = [...attempt(state), ...(this.lanes.length > 1 ? [state.vary, state.value] : [])];
        const what = [state.device, state.axis, state.metric, stackedBy(state.by), state.found, ...trial].join();
        const step = (state.to - state.from) / pixels;
        const key = [what, step.toPrecision(9)].join();
        const near = this.#near;
        if (near && near.key === key && covers(near.stretch, state.from, state.to, [first, end])) return;
        this.#latest.run(async () => {
            try {
                if (this.#whole?.key !== what) {
                    this.#whole = await this.#ask(state, { from: first, to: end, columns: pixels }, what);
                    if (this.#near && !this.#near.key.startsWith(`${what},`)) this.#near = null;
                    showLegend(byId('legend'), this.all().flatMap((each) => each.#whole?.bands.groups ?? []), state.by);
                    this.#changed();
                }
                const stretch = around(state.from, state.to, pixels, [first, end]);
                const isWhole = stretch.columns === pixels && covers(stretch, first, end, [first, end]);
                this.#near = isWhole ? { ...this.#whole, key } : await this.#ask(state, stretch, key);
                this.#changed();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    async #ask(state: Readonly<State>, stretch: Stretch, key: string): Promise<Fetched> {
        const { client } = this.lane.recording;
        const { device, has_reserved } = this.lane.device;
        const { found } = this.lane;
        const { axis, metric } = state;
        const range = [axis, stretch.from, stretch.to, stretch.columns] as const;
        const isAlone = this.lanes.length === 1 && isTried(state);
        const simulate = (of: Metric) => (isAlone ? client.ask('curve_tried', [device, of, ...range, ...attempt(state)]) : null);
        const [bands, reserved, held, ofMetric, ofReserved] = await Promise.all([
            client.ask('bands', [device, metric, stackedBy(state.by), ...range, BANDS]),
            has_reserved ? client.ask('curve', [device, 'reserved', ...range]) : null,
            // Segments are not allocations: none of the found allocations is part of their bands.
            metric !== 'reserved' && found
                ? client.ask('held', [device, metric, ...range, Uint32Array.from(found)])
                : null,
            simulate(metric),
            has_reserved && metric !== 'reserved' ? simulate('reserved') : null,
        ]);
        const reservedThen = has_reserved ? await client.ask('values', [device, 'reserved', bands.instants]) : null;
        const before = this.#whole?.bands.groups.map((group) => group.label) ?? [];
        const stacked = ordered(bands, stretch.columns, before, stackedBy(state.by));
        const sums = edges(stacked, stretch.columns);
        const tried = { metric: ofMetric, reserved: ofReserved };
        if (predictedOf(this.lanes)) void this.#predict(state, stretch, tried);
        else this.lane.predicted = 0;
        return { key, stretch, bands: stacked, sums, reserved, reservedThen, held, tried };
    }

    /** Requests predicted curves, and draws them when they arrive: this reads both recordings. */
    async #predict(state: Readonly<State>, stretch: Stretch, tried: Simulated): Promise<void> {
        const curve = (of: Metric) => predictedCurve(this.lanes, this.lane, of, state, stretch);
        try {
            const hasReserved = this.lane.device.has_reserved && state.metric !== 'reserved';
            [tried.metric, tried.reserved] = await Promise.all([curve(state.metric), hasReserved ? curve('reserved') : null]);
        } catch {
            // "What if" shows what is wrong with the request.
            return;
        }
        if (state.value !== this.lane.store.state.value) return;
        this.lane.predicted = 0;
        for (const values of [tried.metric, tried.reserved]) {
            for (const bytes of values ?? []) if (bytes > this.lane.predicted) this.lane.predicted = bytes;
        }
        for (const each of this.all()) each.surface.invalidate();
    }

    /** Draws the visible part with any pen, into its own box. */
    paint(pen: Pen): void {
        const shown = theme();
        const plot = this.plot();
        pen.rect({ x: 0, y: 0, width: this.surface.width, height: this.surface.height }, BACKGROUND[shown]);
        this.#bands(pen, plot, shown);
        drawAxes(pen, plot, this.lane.recording.figures.folds, this.lane.store.state.axis, shown);
        pen.within({ ...plot.box, y: 0, height: this.surface.height }, () => this.#marks(pen, plot, shown));
        drawRibbons(pen, plot, this.#ribbonsTop(plot), this.#ribbons, this.lane.store.state.axis, shown);
        const heading = this.#heading();
        if (heading !== '') pen.text(LEFT + 6, 13, heading, { fill: TEXT[shown], bold: true });
    }

    /** Names one of two recordings; empty for a single one. */
    #heading(): string {
        if (this.lanes.length === 1) return '';
        const isOne = devicesOf(this.lanes.map((lane) => lane.recording)).length === 1;
        const text = name(this.lane.recording.name, 60) + (isOne ? '' : `, ${name(this.lane.device.name, 40)}`);
        return `${this.lane.letter}  ${text}`;
    }

    #draw(): void {
        this.paint(this.surface.pen);
        if (this.#near) this.#isReady();
        this.#hovered(theme());
    }

    /** The data of the visible range, or as much of it as there is, over the whole run. */
    #bands(pen: Pen, plot: Plot, shown: Theme): void {
        const near = this.#near;
        const isCovered = near && covers(near.stretch, plot.from, plot.to, this.lane.extent());
        const layers = isCovered ? [near] : [this.#whole, near].filter((layer) => layer !== null);
        for (const layer of layers) {
            const { bands, held, reserved, stretch, sums, tried } = layer;
            const colors = shades(bands, shown, this.#meant(layer));
            if (pen === this.surface.pen) {
                this.#blit(plot, layer, colors, shown);
            } else {
                const draw = () => colors.forEach((fill, row) => drawBand(pen, plot, stretch, sums, row, fill));
                pen.within(plot.box, draw);
            }
            if (layer !== layers[layers.length - 1]) continue;
            pen.within(plot.box, () => {
                if (held) drawBand(pen, plot, stretch, held, 0, ACCENT[shown], 0.85);
                if (reserved) drawSteps(pen, plot, stretch, reserved.values, TEXT[shown]);
                if (tried.reserved) drawSteps(pen, plot, stretch, tried.reserved, ACCENT[shown], 1.5, [5, 3]);
                if (tried.metric) drawSteps(pen, plot, stretch, tried.metric, BACKGROUND[shown], 4);
                if (tried.metric) drawSteps(pen, plot, stretch, tried.metric, ACCENT[shown], 2);
            });
        }
    }

    /** The bands that are searched for or selected: found memory is drawn in front of them. */
    #meant({ bands, held }: Fetched): (row: number) => boolean {
        if (held) return () => false;
        const label = chosenBand(this.lane.store.state);
        if (label === null || !bands.groups.some((group) => group.label === label)) return () => true;
        return (row) => bands.groups[row].label === label;
    }

    /** Moves and scales the image of bands to their current position. */
    #blit(plot: Plot, { bands, stretch, sums }: Fetched, colors: readonly string[], shown: Theme): void {
        const raster = bands === this.#whole?.bands ? this.#wholeRaster : this.#nearRaster;
        const { columns } = stretch;
        const height = Math.round(plot.box.height * this.surface.ratio);
        raster.show(bands, [colors.join(''), height, plot.top].join(), columns, height, (pixels) =>
            paintBands(pixels, sums, columns, colors, touching(bands), height, plot.top, BACKGROUND[shown]),
        );
        raster.blit(this.surface, plot, stretch);
    }

    #marks(pen: Pen, plot: Plot, shown: Theme): void {
        const { device, store } = this.lane;
        const { box } = plot;
        const bottom = box.y + box.height;
        const right = box.x + box.width;
        if (device.capacity_bytes !== null && device.capacity_bytes <= plot.top) {
            const y = Math.round(toY(plot, device.capacity_bytes)) + 0.5;
            pen.line([box.x, y, right, y], { stroke: ALARM[shown], dash: [6, 4] });
            pen.text(box.x + 6, y - 4, `${bytes(device.capacity_bytes)} can be reserved`, { fill: ALARM[shown] });
        }
        this.#range.paint(pen, plot, shown);
        this.#diverges(pen, plot, shown);
        this.#cursor(pen, plot, this.lane.at, shown, false);
        if (this.lane.mark !== null) this.#cursor(pen, plot, this.lane.mark, shown, true);
        let labeled = Number.POSITIVE_INFINITY;
        for (const oom of [...device.ooms].reverse()) {
            const x = Math.round(toX(plot, this.lane.x(oom.instant))) + 0.5;
            if (x < box.x || x > right + 1) continue;
            pen.line([Math.min(x, right - 0.5), box.y, Math.min(x, right - 0.5), bottom], { stroke: ALARM[shown] });
            this.#missing(pen, plot, Math.min(x, right - 0.5), oom, shown);
            const text = `OOM: ${bytes(oom.requested_bytes)}`;
            const style = { fill: ALARM[shown], bold: true, anchor: 'end' } as const;
            const end = Math.max(x - 4, box.x + pen.measure(text, style));
            if (end > labeled - 10) continue;
            labeled = end - pen.measure(text, style);
            pen.text(end, 13, text, style);
        }
        const peak = device.peak[store.state.metric];
        const [x, y] = [toX(plot, this.lane.x(peak.instant)), toY(plot, peak.bytes)];
        if (x >= box.x && x <= right && y >= box.y) {
            pen.area(disc(x, y, 3.2), TEXT[shown]);
            const text = `peak ${bound(peak.bound)}${bytes(peak.bytes)}`;
            const style = { fill: '', bold: true };
            const half = pen.measure(text, style) / 2;
            const heading = this.#heading();
            const left = box.x + half + (heading === '' ? 0 : pen.measure(heading, style) + 18);
            const place = Math.min(Math.max(x, left), Math.min(right, labeled - 12) - half);
            if (place >= left) pen.text(place, 13, text, { fill: TEXT[shown], bold: true, anchor: 'middle' });
        }
    }

    /** Where the other recording diverges from this one. */
    #diverges(pen: Pen, plot: Plot, shown: Theme): void {
        const { box } = plot;
        if (this.lane.diverges === null) return;
        const x = Math.round(toX(plot, this.lane.x(this.lane.diverges))) + 0.5;
        if (x < box.x || x > box.x + box.width) return;
        pen.line([x, box.y, x, box.y + box.height], { stroke: TEXT[shown], dash: [4, 3] });
        const style = { fill: TEXT[shown] };
        const width = pen.measure('first difference', style);
        const left = x + 8 + width < box.x + box.width ? x + 2 : x - width - 8;
        const y = box.y + box.height / 2;
        pen.rect({ x: left, y: y - 11, width: width + 6, height: 15 }, BACKGROUND[shown], 0.85);
        pen.text(left + 3, y, 'first difference', style);
    }

    /** A failed request as a box at the end of the curve, as high as the requested bytes. */
    #missing(pen: Pen, plot: Plot, x: number, oom: FailedRequest, shown: Theme): void {
        const { from, to } = missing(this.lane.device, oom);
        const [high, low] = [Math.max(toY(plot, to), plot.box.y), toY(plot, from)];
        if (low <= plot.box.y) return;
        const height = Math.max(low - high, 1);
        const box = { x: x - MISSING, y: high, width: MISSING, height };
        pen.rect(box, ALARM[shown], 0.3);
        pen.outline(box, { stroke: ALARM[shown] });
    }

    #cursor(pen: Pen, plot: Plot, instant: number, shown: Theme, isMark: boolean): void {
        // Left of the instant's column, which it would hide: a peak is often no wider than that.
        const x = Math.round(toX(plot, this.lane.x(instant))) - 0.5;
        const { box } = plot;
        if (x < box.x - 1 || x > box.x + box.width + 1) return;
        const bottom = box.y + box.height;
        pen.line([x - 1, box.y, x - 1, bottom], { stroke: BACKGROUND[shown] });
        pen.line([x, box.y, x, bottom], { stroke: ACCENT[shown], ...(isMark ? { dash: [4, 3] } : {}) });
        pen.area([x - 5, bottom + 6, x + 5, bottom + 6, x, bottom], ACCENT[shown]);
    }

    /** The band under the pointer, highlighted. Not part of saved pictures. */
    #hovered(shown: Theme): void {
        const under = this.#under();
        if (!under) return;
        const { pen } = this.surface;
        const plot = this.plot();
        pen.within(plot.box, () => {
            if (under.row >= 0) {
                drawBand(
                    pen,
                    plot,
                    under.fetched.stretch,
                    under.fetched.sums,
                    under.row,
                    shown === 'light' ? '#FFFFFF' : '#000000',
                    0.25,
                );
            }
            const x = Math.round(this.#hover!.x) + 0.5;
            pen.line([x, plot.box.y, x, plot.box.y + plot.box.height], { stroke: MUTED[shown], dash: [2, 3] });
        });
    }

    /** Where ribbons start. */
    #ribbonsTop(plot: Plot): number {
        return plot.box.y + plot.box.height + 22;
    }

    /** The annotation or step under the pointer. */
    #span(): Span | null {
        const plot = this.plot();
        if (!this.#hover) return null;
        const { axis } = this.lane.store.state;
        return spanAt(plot, this.#ribbonsTop(plot), this.#ribbons, axis, this.#hover.x, this.#hover.y);
    }

    #showSpan(span: Span, x: number, y: number): void {
        const { figures } = this.lane.recording;
        const lines: TipLine[] = [{ text: name(span.name, 300), strong: true }];
        const length = figures.has_times ? `, ${duration(span.to_us - span.from_us)}` : '';
        lines.push({ text: `${counted(span.to - span.from, 'entry', 'entries')}${length}` });
        const bounds = this.surface.canvas.getBoundingClientRect();
        this.tip.show(bounds.left + x, bounds.top + y, lines);
    }

    /** What is under the pointer. */
    #under(): { fetched: Fetched; at: number; row: number; instant: number } | null {
        const plot = this.plot();
        const fetched = this.#near ?? this.#whole;
        if (!this.#hover || !fetched || !isInside(plot.box, this.#hover.x, this.#hover.y)) return null;
        const at = column(fetched.stretch, fromX(plot, this.#hover.x));
        if (at < 0) return null;
        const row = bandAt(fetched.sums, fetched.stretch.columns, at, fromY(plot, this.#hover.y));
        return { fetched, at, row, instant: fetched.bands.instants[at] };
    }

    #point(x: number, y: number): void {
        this.#hover = x < 0 ? null : { x, y };
        this.surface.invalidate();
        const under = this.#under();
        const span = this.#span();
        if (span) {
            this.#showSpan(span, x, y);
            return;
        }
        if (!under) {
            this.tip.hide();
            return;
        }
        const { fetched, at, row, instant } = under;
        const { device, recording, store } = this.lane;
        const total = fetched.bands.totals[at];
        const lines: TipLine[] = [];
        if (row >= 0) {
            const group = fetched.bands.groups[row];
            const held = fetched.bands.values[row * fetched.stretch.columns + at];
            lines.push({ text: name(group.label) + (group.inferred ? ' *' : ''), color: group, strong: true });
            lines.push({ text: `${bytes(held)}  ${share(held, total)}` });
            if (group.purpose !== null && store.state.by !== 'category') lines.push({ text: group.purpose });
        }
        const { metric } = store.state;
        const limit = (of: Metric) => bound(device.bounds[of]);
        const then = metric === 'reserved' ? null : fetched.reservedThen;
        const reserved = then ? `, ${limit('reserved')}${bytes(then[at])} reserved` : '';
        lines.push({ text: `${limit(metric)}${bytes(total)} ${metric}${reserved}` });
        const time = recording.figures.has_times
            ? `, after ${duration(recording.x(device.device, instant, 'time'))}`
            : '';
        const { metric: simulated } = fetched.tried;
        if (simulated && simulated[at] >= 0) lines.push({ text: `${bytes(simulated[at])} ${this.#trial()}` });
        if (fetched.held) lines.push({ text: `${bytes(fetched.held[at])} matches the search` });
        lines.push({ text: `${entryOf(instant, device.entries)}${time}` });
        const open = recording.open(device.device, instant);
        if (open.length > 0) lines.push({ text: `in ${name(open.join(' / '))}` });
        const bounds = this.surface.canvas.getBoundingClientRect();
        this.tip.show(bounds.left + x, bounds.top + y, lines);
    }

    /** What is tried, in words. */
    #trial(): string {
        const varied = predictedOf(this.lanes);
        return varied ? `with ${name(varied.name, 40)} ${whole(this.lane.store.state.value)}` : 'with the changes';
    }

    #click(x: number, y: number, isSecond: boolean): void {
        this.#hover = { x, y };
        const span = this.#span();
        if (span) {
            this.lane.store.set(clamped(...edgesOf(span, this.lane.store.state.axis), extent(this.lanes)));
            return;
        }
        const under = this.#under();
        if (!under) return;
        if (isSecond && this.lanes.length === 1) {
            this.lane.store.set({ mark: under.instant });
            return;
        }
        endRange(this.lane);
        lookAt(this.lanes, this.lane, under.instant);
        const label = under.fetched.bands.groups[under.row]?.label;
        const { by } = this.lane.store.state;
        const isBand = stackedBy(by) !== by;
        this.lane.store.set({ selected: label === undefined ? null : { label, isBand } });
    }
}

function disc(x: number, y: number, radius: number): number[] {
    const points: number[] = [];
    for (let turn = 0; turn < 16; turn++) {
        points.push(x + radius * Math.cos((turn * Math.PI) / 8), y + radius * Math.sin((turn * Math.PI) / 8));
    }
    return points;
}
