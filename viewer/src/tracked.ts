/** Tracks below each other, on the axis of the timeline; pinned ones stay visible, folded ones show only their header. */

import type { Metric } from '../engine/engine.d.ts';
import { lookAt } from './aligned.ts';
import { Latest } from './client.ts';
import { ACCENT, ALARM, BACKGROUND, GRID, MUTED, OTHER, TEXT, type Theme } from './colors.ts';
import { button, element } from './dom.ts';
import { bound, bytes, counted, duration, entryOf, name } from './format.ts';
import { extent, type Lane } from './lane.ts';
import { clamped, navigate } from './navigate.ts';
import type { Pen } from './pen.ts';
import { fromX, LEFT, type Plot, RIGHT, toX } from './plot.ts';
import { endRange, RangeDrag } from './range.ts';
import type { Recording } from './recording.ts';
import { drawRibbons, edgesOf, spanAt } from './ribbons.ts';
import { Scrolled } from './scrolled.ts';
import { around, column, covers, type Stretch } from './stacked.ts';
import { parts, toggled, touches } from './state.ts';
import { Surface } from './surface.ts';
import { theme } from './theme.ts';
import type { Tip, TipLine } from './tip.ts';
import { type Member, members, type Track, tracksOf } from './tracks.ts';
import type { Drawn, View } from './view.ts';

/** A counter of the visible range. */
interface Fetched {
    key: string;
    stretch: Stretch;
    values: Float64Array;
    instants: Uint32Array;
}

/** A track and its position, from the top of all tracks of its kind. */
interface Placed {
    track: Track;
    y: number;
}

export class TracksView implements View {
    readonly tab = 'tracks';
    readonly title = 'Tracks';
    readonly panel = element('div', { class: 'panel tracks' });
    readonly #members: readonly Member[];
    #tracks: readonly Track[] = [];
    #shown: readonly Placed[] = [];
    #pinned: readonly Placed[] = [];
    readonly #counters = new Map<string, { latest: Latest; fetched: Fetched | null }>();
    readonly #surface: Surface;
    readonly #top: Surface;
    readonly #topHost = element('div', { class: 'pinned' });
    readonly #labels = element('div', { class: 'labels' });
    readonly #topLabels = element('div', { class: 'labels' });
    readonly #scrolled: Scrolled;
    readonly #ranges = new Map<Surface, RangeDrag>();
    #isBegun = false;
    readonly drawn: readonly Drawn[];

    constructor(
        private readonly lanes: readonly Lane[],
        private readonly tip: Tip,
        /** Makes all views show another recording. */
        private readonly turnTo: (recording: Recording) => void,
        private readonly fail: (error: unknown) => void,
    ) {
        this.#members = members([...lanes.map((lane) => lane.recording), ...lanes[0].beside]);
        const host = element('div');
        const frame = element('div', { class: 'frame' });
        this.#topHost.append(frame, this.#topLabels);
        this.panel.append(this.#topHost, host);
        const { gone } = lanes[0].store;
        const invalid = () => this.#fetch();
        this.#scrolled = new Scrolled(host, gone, () => this.#draw(this.#surface), invalid);
        host.append(this.#labels);
        this.#surface = this.#scrolled.surface;
        this.#top = new Surface(frame, gone, () => this.#draw(this.#top), invalid);
        for (const surface of [this.#surface, this.#top]) this.#listen(surface);
        host.addEventListener('scroll', () => this.#fetch());
        this.drawn = [this.#top, this.#surface].map((surface) => ({
            surface,
            paint: (pen: Pen) => this.#paint(pen, surface),
        }));
        lanes[0].store.subscribe((state, changed) => {
            if (state.tab !== 'tracks' || !this.#isBegun) return;
            if (touches(changed, 'pinned', 'folded')) this.#place();
            this.#fetch();
            this.#invalidate();
        });
    }

    show(): void {
        if (this.#isBegun) {
            this.#place();
            this.#fetch();
            return;
        }
        this.#isBegun = true;
        void this.#begin().catch(this.fail);
    }

    async #begin(): Promise<void> {
        const isAlone = this.lanes.length === 1 && this.lanes[0].beside.length === 0;
        this.#tracks = (await Promise.all(this.#members.map((member) => tracksOf(member, isAlone, this.lanes[0].lags.get(member.recording))))).flat();
        this.#place();
        this.#fetch();
    }

    /** Computes the positions of tracks, and their labels. */
    #place(): void {
        const { pinned, folded } = this.lanes[0].store.state;
        const [pins, folds] = [parts(pinned), parts(folded)];
        const of = (wanted: (track: Track) => boolean): [Placed[], number] => {
            let y = 0;
            const placed = this.#tracks.filter(wanted).map((track) => {
                const at = { track, y };
                y += track.height;
                return at;
            });
            return [placed, y];
        };
        const isPinned = ({ id }: Track) => pins.includes(id);
        const [top, topHeight] = of(isPinned);
        const [shown, height] = of((track) => !isPinned(track) && (track.kind === 'head' || !folds.includes(track.key)));
        [this.#pinned, this.#shown] = [top, shown];
        this.#topHost.style.height = `${topHeight}px`;
        this.#scrolled.height = height + 6;
        const { activeElement } = document;
        const focused = this.panel.contains(activeElement) ? (activeElement as HTMLElement).dataset.track : undefined;
        this.#topLabels.replaceChildren(...top.map((placed) => this.#label(placed, true, folds)));
        this.#labels.replaceChildren(...shown.map((placed) => this.#label(placed, false, folds)));
        if (focused !== undefined)
            [...this.panel.querySelectorAll<HTMLElement>('[data-track]')].find((each) => each.dataset.track === focused)?.focus();
        this.#invalidate();
    }

    #label({ track, y }: Placed, isPinned: boolean, folds: readonly string[]): HTMLElement {
        const { store } = this.lanes[0];
        const made = element('div', { class: `track ${track.kind}` });
        made.style.top = `${y}px`;
        made.style.height = `${track.height}px`;
        if (track.kind === 'head') {
            const isFolded = folds.includes(track.key);
            const fold = button(`${isFolded ? '▸' : '▾'} ${name(track.label, 200)}`, isFolded ? 'Show its tracks' : 'Fold its tracks', () =>
                store.set({ folded: toggled(store.state.folded, track.key) }),
            );
            fold.dataset.track = `fold ${track.id}`;
            fold.setAttribute('aria-expanded', String(!isFolded));
            made.append(fold);
            if (!this.lanes.some((lane) => lane.recording === track.recording)) {
                const open = button('open', 'Show this rank in all views', () => this.turnTo(track.recording));
                open.className = 'link';
                made.append(open);
            }
            return made;
        }
        const of = isPinned && this.#members.length > 1 ? `${track.label} of ${name(track.recording.name, 40)}, ${track.device.name}` : track.label;
        const pin = button(isPinned ? 'unpin' : 'pin', isPinned ? 'Let this track scroll again' : 'Keep this track in sight', () =>
            store.set({ pinned: toggled(store.state.pinned, track.id) }),
        );
        pin.className = 'pin';
        pin.dataset.track = `pin ${track.id}`;
        pin.setAttribute('aria-pressed', String(isPinned));
        pin.setAttribute('aria-label', `${isPinned ? 'Unpin' : 'Pin'} ${track.label || 'annotations'}`);
        made.append(element('span', { title: of }, track.label), pin);
        return made;
    }

    /** Whether a device has a position on the axis: without steps, it has none on the axis of steps. */
    #isPlaced({ recording, device }: Track): boolean {
        return this.lanes[0].store.state.axis !== 'step' || recording.steps(device.device).length > 0;
    }

    /** The start of a recording on the axis. */
    #lag(recording: Recording): number {
        const [{ lags, store }] = this.lanes;
        return store.state.axis === 'time' ? (lags.get(recording) ?? 0) : 0;
    }

    /** The same part on the axis of a recording. */
    #plotOf(plot: Plot, recording: Recording): Plot {
        const lag = this.#lag(recording);
        return { ...plot, from: plot.from - lag, to: plot.to - lag };
    }

    /** The visible part of the axis. */
    #plot(surface: Surface): Plot {
        const { from, to } = this.lanes[0].store.state;
        const width = Math.max(10, surface.width - LEFT - RIGHT);
        return { box: { x: LEFT, y: 0, width, height: surface.height }, from, to, top: 1 };
    }

    /** The visible tracks of a surface, and their positions. */
    #seen(surface: Surface): Placed[] {
        const isTop = surface === this.#top;
        const offset = isTop ? 0 : this.#scrolled.offset;
        const all = isTop ? this.#pinned : this.#shown;
        return all
            .map(({ track, y }) => ({ track, y: y - offset }))
            .filter(({ track, y }) => y + track.height > 0 && y < surface.height);
    }

    /** Requests the visible counters. */
    #fetch(): void {
        const { axis, from: left, to: right } = this.lanes[0].store.state;
        if (!this.#isBegun || this.lanes[0].store.state.tab !== 'tracks') return;
        for (const surface of [this.#top, this.#surface]) {
            if (surface.width === 0) continue;
            const pixels = Math.round(this.#plot(surface).box.width);
            const key = [axis, ((right - left) / pixels).toPrecision(9)].join();
            for (const { track } of this.#seen(surface)) {
                if (track.kind !== 'counter' || !this.#isPlaced(track)) continue;
                const { recording, metric } = track;
                const { device } = track.device;
                const whole = recording.extent(device, axis);
                const lag = this.#lag(recording);
                const [from, to] = [left - lag, right - lag];
                const known = this.#counters.get(track.id) ?? { latest: new Latest(true), fetched: null };
                this.#counters.set(track.id, known);
                if (known.fetched?.key === key && covers(known.fetched.stretch, from, to, whole)) continue;
                known.latest.run(async () => {
                    try {
                        const stretch = around(from, to, pixels, whole);
                        const range = [axis, stretch.from, stretch.to, stretch.columns] as const;
                        const curve = await recording.client.ask('curve', [device, metric, ...range]);
                        known.fetched = { key, stretch, ...curve };
                        this.#invalidate();
                    } catch (error) {
                        this.fail(error);
                    }
                });
            }
        }
    }

    #invalidate(): void {
        this.#surface.invalidate();
        this.#top.invalidate();
    }

    #draw(surface: Surface): void {
        this.#paint(surface.pen, surface);
    }

    #paint(pen: Pen, surface: Surface): void {
        const shown = theme();
        const plot = this.#plot(surface);
        pen.rect({ x: 0, y: 0, width: surface.width, height: surface.height }, BACKGROUND[shown]);
        const isTop = surface === this.#top;
        for (const placed of this.#seen(surface)) {
            this.#track(pen, this.#plotOf(plot, placed.track.recording), placed, shown, pen !== surface.pen, isTop);
        }
        pen.within(plot.box, () => this.#ranges.get(surface)?.paint(pen, plot, shown));
    }

    #track(pen: Pen, plot: Plot, { track, y }: Placed, shown: Theme, isKept: boolean, isTop: boolean): void {
        const { box } = plot;
        const bottom = y + track.height;
        if (track.kind === 'head') {
            pen.rect({ x: 0, y, width: box.x + box.width + RIGHT, height: track.height }, GRID[shown], 0.45);
            // On the screen, it is a button.
            if (isKept) pen.text(14, y + 14, name(track.label, 160), { fill: TEXT[shown], bold: true });
            return;
        }
        if (isKept) pen.text(box.x - 8, y + 13, track.label, { fill: MUTED[shown], anchor: 'end' });
        const { axis } = this.lanes[0].store.state;
        if (!this.#isPlaced(track)) {
            pen.text(box.x + 4, y + 12, track.recording.whyNoSteps(track.device.device), { fill: MUTED[shown], size: 10.5 });
            return;
        }
        pen.within({ ...box, y, height: track.height }, () => {
            if (track.kind === 'spans') drawRibbons(pen, plot, y + 2, [track.spans], axis, shown);
            if (track.kind === 'counter')
                this.#counter(pen, { ...plot, box: { ...box, y: y + 3, height: track.height - 5 } }, track, shown, isTop);
            if (track.kind === 'samples') this.#samples(pen, { ...plot, box: { ...box, y: y + 3, height: track.height - 5 } }, track, shown);
            this.#marks(pen, plot, track, y, shown);
        });
        pen.rect({ x: box.x, y: bottom - 1, width: box.width, height: 1 }, GRID[shown], 0.6);
    }

    /** The maximum of all devices of the kind, so that all have one scale. */
    #most(metric: Metric, isHost: boolean): number {
        const alike = this.#members.filter(({ device }) => device.device < 0 === isHost);
        return Math.max(1, ...alike.map(({ device }) => Math.max(device.peak[metric].bytes, metric === 'requested' ? device.peak.allocated.bytes : 0)));
    }

    #counter(pen: Pen, plot: Plot, track: Track & { kind: 'counter' }, shown: Theme, isTop: boolean): void {
        const fetched = this.#counters.get(track.id)?.fetched;
        if (!fetched) return;
        const { box } = plot;
        const most = this.#most(track.metric, track.device.device < 0);
        const bottom = box.y + box.height;
        const { stretch, values } = fetched;
        const step = (stretch.to - stretch.from) / stretch.columns;
        const first = Math.max(0, column(stretch, plot.from));
        const last = plot.to >= stretch.to ? stretch.columns - 1 : column(stretch, plot.to);
        const points: number[] = [toX(plot, stretch.from + first * step), bottom];
        for (let at = first; at <= last; at++) {
            const height = bottom - (values[at] / most) * box.height;
            points.push(toX(plot, stretch.from + at * step), height, toX(plot, stretch.from + (at + 1) * step), height);
        }
        points.push(toX(plot, stretch.from + (last + 1) * step), bottom);
        pen.area(points, OTHER[shown], 0.75);
        const peak = track.device.peak[track.metric];
        // Away from its header, it names its recording and device.
        const whose = isTop && this.#members.length > 1 ? `, ${name(track.recording.name, 40)}, ${track.device.name}` : '';
        const text = `${bound(peak.bound)}${bytes(peak.bytes)}${whose}`;
        pen.text(box.x + 4, box.y + 9, text, { fill: TEXT[shown], size: 10.5 });
        const behind = this.#behind(track);
        if (behind !== '') pen.text(box.x + box.width - 4, box.y + 9, behind, { fill: MUTED[shown], size: 10.5, anchor: 'end' });
    }

    /** A note that a device has entries after the end of the axis, which is that of the shown device. */
    #behind({ device, metric, recording }: Track & { kind: 'counter' }): string {
        const count = device.entries + 1 - Math.floor(extent(this.lanes)[1]);
        if (this.lanes[0].store.state.axis !== 'entry' || metric !== 'allocated' || count <= 0) return '';
        const other = recording.figures.has_times ? '; the time axis shows all entries' : '';
        return `${counted(count, 'more entry', 'more entries')} beyond the end of this axis${other}`;
    }

    /** The memory in use on the whole device, at its samples. */
    #samples(pen: Pen, plot: Plot, { samples, recording, device }: Track & { kind: 'samples' }, shown: Theme): void {
        const { box } = plot;
        const { axis } = this.lanes[0].store.state;
        const most = Math.max(1, ...samples.map((sample) => sample.total_bytes));
        const height = (count: number) => (count / most) * box.height;
        const bottom = box.y + box.height;
        for (const { instant, used_bytes, reserved_bytes } of samples) {
            if (instant === null) continue;
            const x = Math.min(toX(plot, recording.x(device.device, instant, axis)), box.x + box.width - 3);
            pen.rect({ x: x - 2, y: bottom - height(used_bytes), width: 5, height: height(used_bytes) }, ALARM[shown], 0.7);
            pen.rect({ x: x - 2, y: bottom - height(reserved_bytes), width: 5, height: height(reserved_bytes) }, OTHER[shown]);
        }
        pen.text(box.x + 4, box.y + 9, `${bytes(most)} in total`, { fill: TEXT[shown], size: 10.5 });
    }

    /** Failed requests, and the cursor in recordings that have one. */
    #marks(pen: Pen, plot: Plot, { recording, device, height }: Track, y: number, shown: Theme): void {
        const { axis, device: current } = this.lanes[0].store.state;
        const line = (instant: number, stroke: string) => {
            const x = Math.round(toX(plot, recording.x(device.device, instant, axis))) - 0.5;
            pen.line([x, y, x, y + height], { stroke });
        };
        for (const { instant } of device.ooms) line(instant, ALARM[shown]);
        const lane = this.lanes.find((each) => each.recording === recording);
        if (lane && recording.device(current).device === device.device) line(lane.at, ACCENT[shown]);
    }

    #listen(surface: Surface): void {
        const { canvas } = surface;
        canvas.setAttribute('role', 'img');
        canvas.setAttribute('aria-label', 'Tracks over time; their names and figures are beside them');
        // The wheel scrolls the tracks; with Ctrl, it zooms.
        canvas.addEventListener('wheel', (event) => {
            if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) >= Math.abs(event.deltaX)) event.stopImmediatePropagation();
        });
        const range = new RangeDrag(this.lanes[0], this.tip, () => this.#plot(surface), () => surface);
        this.#ranges.set(surface, range);
        navigate({
            canvas,
            store: this.lanes[0].store,
            plot: () => this.#plot(surface),
            extent: () => extent(this.lanes),
            hover: (x, y) => this.#point(surface, x, y),
            leave: () => this.tip.hide(),
            click: (x, y) => this.#click(surface, x, y),
            ...(this.lanes.length === 1 ? { range } : {}),
        });
    }

    #under(surface: Surface, y: number): Placed | undefined {
        return this.#seen(surface).find(({ track, y: top }) => y >= top && y < top + track.height);
    }

    #point(surface: Surface, x: number, y: number): void {
        const placed = this.#under(surface, y);
        const plot = this.#plot(surface);
        const lines = placed && x >= LEFT ? this.#lines(this.#plotOf(plot, placed.track.recording), placed, x, y) : [];
        const bounds = surface.canvas.getBoundingClientRect();
        if (lines.length > 0) this.tip.show(bounds.left + x, bounds.top + y, lines);
        else this.tip.hide();
    }

    /** The text for a point of a track. */
    #lines(plot: Plot, { track, y: top }: Placed, x: number, y: number): TipLine[] {
        const { recording, device } = track;
        const { axis } = this.lanes[0].store.state;
        const of = this.#members.length > 1 ? [{ text: `${name(recording.name, 60)}, ${device.name}` }] : [];
        if (!this.#isPlaced(track)) return of;
        if (track.kind === 'spans') {
            const span = spanAt(plot, top + 2, [track.spans], axis, x, Math.min(y, top + 12));
            if (!span) return [];
            const length = recording.figures.has_times ? `, ${duration(span.to_us - span.from_us)}` : '';
            return [{ text: name(span.name, 300), strong: true }, { text: `${counted(span.to - span.from, 'entry', 'entries')}${length}` }, ...of];
        }
        if (track.kind === 'samples') {
            const near = track.samples.filter(
                ({ instant }) => instant !== null && Math.abs(toX(plot, recording.x(device.device, instant, axis)) - x) < 6,
            );
            return near.flatMap((sample) => [
                { text: `${bytes(sample.used_bytes)} of ${bytes(sample.total_bytes)} in use`, strong: true },
                { text: `${bytes(sample.reserved_bytes)} of it reserved by PyTorch; sampled at: ${name(sample.occasion)}` },
            ]);
        }
        if (track.kind !== 'counter') return [];
        const fetched = this.#counters.get(track.id)?.fetched;
        const at = fetched ? column(fetched.stretch, fromX(plot, x)) : -1;
        if (!fetched || at < 0) return of;
        return [
            { text: `${bound(device.bounds[track.metric])}${bytes(fetched.values[at])} ${track.metric}`, strong: true },
            { text: entryOf(fetched.instants[at], device.entries) },
            ...of,
        ];
    }

    /** Moves the cursor to an instant of a counter, or the visible range to a span. */
    #click(surface: Surface, x: number, y: number): void {
        const placed = this.#under(surface, y);
        if (!placed || !this.#isPlaced(placed.track)) return;
        const { track } = placed;
        const { store } = this.lanes[0];
        const plot = this.#plotOf(this.#plot(surface), track.recording);
        if (track.kind === 'spans') {
            const span = spanAt(plot, placed.y + 2, [track.spans], store.state.axis, x, Math.min(y, placed.y + 12));
            const lag = this.#lag(track.recording);
            if (span) {
                const [from, to] = edgesOf(span, store.state.axis);
                store.set(clamped(from + lag, to + lag, extent(this.lanes)));
            }
            return;
        }
        const fetched = track.kind === 'counter' ? this.#counters.get(track.id)?.fetched : null;
        const at = fetched ? column(fetched.stretch, fromX(plot, x)) : -1;
        const lane = this.lanes.find((each) => each.recording === track.recording);
        if (lane && fetched && at >= 0 && lane.device.device === track.device.device) {
            endRange(lane);
            lookAt(this.lanes, lane, fetched.instants[at]);
        }
    }
}
