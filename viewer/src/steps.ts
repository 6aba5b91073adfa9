/** All steps of a program above each other: the median step, the range of all, and the steps that differ most. */

import type { Curve, Overlay } from '../engine/engine.d.ts';
import { lookAt, STEP } from './aligned.ts';
import { Latest } from './client.ts';
import { ACCENT, BACKGROUND, GRID, MUTED, TEXT, type Theme } from './colors.ts';
import { type Differing, differing } from './differing.ts';
import { button, element } from './dom.ts';
import { bytes, counted, name } from './format.ts';
import { extent, type Lane } from './lane.ts';
import { clamped } from './navigate.ts';
import type { Pen } from './pen.ts';
import { drawAxes, fromX, isInside, LEFT, type Plot, RIGHT, toY } from './plot.ts';
import { column, drawSteps } from './stacked.ts';
import { touches } from './state.ts';
import { Surface } from './surface.ts';
import { theme } from './theme.ts';
import type { Tip } from './tip.ts';
import type { Drawn, View } from './view.ts';

/** The most steps that are drawn on their own. */
const MOST = 6;
/** With fewer steps, there is no median to differ from. */
export const LEAST = 3;

interface Fetched {
    overlay: Overlay;
    differing: Differing[];
    /** The curves of the first of them. */
    curves: Curve[];
}

/** The steps of one recording. */
class Steps implements Drawn {
    readonly surface: Surface;
    readonly #words = element('div', { class: 'tools' });
    #latest = new Latest();
    #fetched: Fetched | null = null;
    #key = '';
    /** The place of the step under the pointer among those that differ; -1 for none. */
    #hover = -1;

    constructor(
        host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly lane: Lane,
        private readonly tip: Tip,
        private readonly fail: (error: unknown) => void,
    ) {
        const frame = element('div', { class: 'frame' });
        host.append(this.#words, frame);
        const { gone } = lane.store;
        this.surface = new Surface(frame, gone, () => this.paint(this.surface.pen), () => this.fetch());
        const { canvas } = this.surface;
        canvas.setAttribute('role', 'img');
        canvas.setAttribute('aria-label', `The steps of ${name(lane.recording.name)} above each other; the list above says which differ`);
        canvas.addEventListener('pointermove', (event) => this.#point(event));
        canvas.addEventListener('pointerleave', () => this.#leave());
        canvas.addEventListener('click', () => {
            const of = this.#fetched?.differing[this.#hover];
            if (of) this.#visit(of.step);
        });
        lane.store.subscribe((state, changed) => {
            if (state.tab === 'steps' && touches(changed, 'device', 'metric', 'tab')) this.fetch();
        });
    }

    #plot(): Plot {
        const { width, height } = this.surface;
        const box = { x: LEFT, y: 10, width: Math.max(10, width - LEFT - RIGHT), height: Math.max(10, height - 34) };
        const highest = this.#fetched?.overlay.highest ?? [];
        return { box, from: 0, to: STEP, top: Math.max(1, ...highest) * 1.06 };
    }

    fetch(): void {
        const { device, recording, store } = this.lane;
        const { metric, tab } = store.state;
        if (tab !== 'steps' || this.surface.width === 0) return;
        const steps = recording.steps(device.device);
        if (steps.length < LEAST) {
            const why = steps.length === 0 ? recording.whyNoSteps(device.device) : `the recording has ${counted(steps.length, 'step')}`;
            this.#words.replaceChildren(`Steps are compared with their median if there are at least ${LEAST}: ${why}.`);
            this.#fetched = null;
            this.surface.invalidate();
            return;
        }
        const columns = Math.round(this.#plot().box.width);
        const key = [device.device, metric, columns].join();
        if (key === this.#key) return;
        this.#latest.run(async () => {
            try {
                const { client } = recording;
                const overlay = await client.ask('overlay', [device.device, metric, columns]);
                const found = differing(overlay);
                const curve = ({ step }: Differing) =>
                    client.ask('curve', [device.device, metric, 'step', step * STEP, (step + 1) * STEP, columns]);
                this.#fetched = { overlay, differing: found, curves: await Promise.all(found.slice(0, MOST).map(curve)) };
                this.#key = key;
                this.#hover = -1;
                this.#tell(this.#fetched);
                this.surface.invalidate();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** Says what is drawn, and which steps differ. */
    #tell({ overlay, differing: found }: Fetched): void {
        const count = overlay.above.length;
        const alike = count - found.length;
        const said =
            found.length === 0
                ? `All ${counted(count, 'step')} are alike.`
                : `${counted(count, 'step')}: ${alike} of them like the median step everywhere, ${found.length} not. Those that differ most:`;
        const link = (of: Differing) => {
            const made = button(`${this.#name(of.step)} (${apart(of)})`, 'Show this step in the timeline', () => this.#visit(of.step));
            made.className = 'link';
            made.dataset.step = String(of.step + 1);
            return made;
        };
        const key = [
            element('span', { class: 'legend median' }, 'median of the steps'),
            element('span', { class: 'legend range' }, 'from the lowest to the highest step'),
            ...(found.length > 0 ? [element('span', { class: 'legend apart' }, 'a step that differs')] : []),
        ];
        this.#words.replaceChildren(...key, element('span', {}, said), ...found.slice(0, MOST).map(link));
    }

    paint(pen: Pen): void {
        const shown = theme();
        const plot = this.#plot();
        pen.rect({ x: 0, y: 0, width: this.surface.width, height: this.surface.height }, BACKGROUND[shown]);
        const fetched = this.#fetched;
        if (!fetched) return;
        pen.within(plot.box, () => this.#curves(pen, plot, fetched, shown));
        drawAxes(pen, plot, this.lane.recording.figures.folds, 'step', shown);
        if (this.lanes.length > 1) pen.text(LEFT + 6, 22, this.lane.letter, { fill: MUTED[shown], bold: true });
    }

    #curves(pen: Pen, plot: Plot, { overlay, curves }: Fetched, shown: Theme): void {
        const { lowest, median, highest } = overlay;
        const stretch = { from: 0, to: STEP, columns: median.length };
        const width = plot.box.width / median.length;
        lowest.forEach((low, at) => {
            const y = toY(plot, highest[at]);
            pen.rect({ x: plot.box.x + at * width, y, width: width + 0.5, height: Math.max(toY(plot, low) - y, 0) }, GRID[shown]);
        });
        curves.forEach(({ values }, at) => {
            const isHovered = at === this.#hover;
            drawSteps(pen, plot, stretch, values, ACCENT[shown], isHovered ? 2.5 : 1);
        });
        drawSteps(pen, plot, stretch, median, TEXT[shown], 1.5);
    }

    #leave(): void {
        this.#hover = -1;
        this.tip.hide();
        this.surface.invalidate();
    }

    #point(event: PointerEvent): void {
        const bounds = this.surface.canvas.getBoundingClientRect();
        const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
        const plot = this.#plot();
        const fetched = this.#fetched;
        if (!fetched || !isInside(plot.box, x, y)) {
            this.#leave();
            return;
        }
        const { overlay, curves, differing: found } = fetched;
        const at = column({ from: 0, to: STEP, columns: overlay.median.length }, fromX(plot, x));
        const distance = (of: Curve) => Math.abs(toY(plot, of.values[at]) - y);
        const nearest = curves.reduce((best, of, place) => (best < 0 || distance(of) < distance(curves[best]) ? place : best), -1);
        this.#hover = nearest >= 0 && distance(curves[nearest]) < 8 ? nearest : -1;
        const step = this.#hover < 0 ? [] : [{ text: `${this.#name(found[this.#hover].step)}: ${bytes(curves[this.#hover].values[at])}`, strong: true }];
        this.tip.show(event.clientX, event.clientY, [
            ...step,
            { text: `median of the steps: ${bytes(overlay.median[at])}` },
            { text: `all steps: ${bytes(overlay.lowest[at])} to ${bytes(overlay.highest[at])}` },
        ]);
        this.surface.invalidate();
    }

    #name(step: number): string {
        return this.lane.recording.steps(this.lane.device.device)[step].name;
    }

    /** Shows a step in the timeline, at its highest point. */
    #visit(step: number): void {
        const { lane } = this;
        const { from, to } = lane.recording.steps(lane.device.device)[step];
        const [left, right] = [lane.x(from), lane.x(to)];
        lane.store.set(clamped(left - 0.05 * (right - left), right + 0.05 * (right - left), extent(this.lanes)));
        const place = this.#fetched?.differing.findIndex((each) => each.step === step) ?? -1;
        const curve = this.#fetched?.curves[place];
        if (!curve) return;
        const highest = curve.values.reduce((best, value, at) => (value > curve.values[best] ? at : best), 0);
        lookAt(this.lanes, lane, curve.instants[highest]);
    }
}

/** How far a step is from the median, in words. */
function apart({ above, below }: Differing): string {
    const parts = [above > 0 ? `up to ${bytes(above)} above` : '', below > 0 ? `up to ${bytes(below)} below` : ''];
    return parts.filter((part) => part !== '').join(', ');
}

export class StepsView implements View {
    readonly tab = 'steps';
    readonly title = 'Steps';
    readonly panel = element('div', { class: 'panel overlay lanes' });
    readonly drawn: readonly Steps[];

    constructor(lanes: readonly Lane[], tip: Tip, fail: (error: unknown) => void) {
        const hosts = lanes.map(() => element('div'));
        this.panel.append(...hosts);
        this.drawn = lanes.map((lane, at) => new Steps(hosts[at], lanes, lane, tip, fail));
    }

    show(): void {
        for (const each of this.drawn) {
            each.fetch();
            each.surface.invalidate();
        }
    }
}
