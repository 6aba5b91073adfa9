/** The whole run in a strip, and its visible part. */

import type { Curve } from '../engine/engine.d.ts';
import { Latest } from './client.ts';
import { ACCENT, ALARM, BACKGROUND, GRID, MUTED } from './colors.ts';
import { extent, type Lane } from './lane.ts';
import { clamped } from './navigate.ts';
import { fromX, LEFT, type Plot, RIGHT, toX, toY } from './plot.ts';
import { touches } from './state.ts';
import { Surface } from './surface.ts';
import { theme } from './theme.ts';

interface Strip {
    lane: Lane;
    curve: Curve | null;
    /** Identifies the content of the curve. */
    key: string;
    latest: Latest;
}

export class Minimap {
    readonly surface: Surface;
    #strips: Strip[];

    constructor(
        host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly fail: (error: unknown) => void,
    ) {
        this.#strips = lanes.map((lane) => ({ lane, curve: null, key: '', latest: new Latest() }));
        this.surface = new Surface(
            host,
            lanes[0].store.gone,
            () => this.#draw(),
            () => this.#fetch(),
        );
        this.surface.canvas.setAttribute('role', 'img');
        this.surface.canvas.setAttribute('aria-label', 'The whole run; drag to move the visible range');
        lanes[0].store.subscribe((_, changed) => {
            if (touches(changed, 'device', 'axis', 'metric')) this.#fetch();
            this.surface.invalidate();
        });
        this.#listen();
    }

    #plot(): Plot {
        const [from, to] = extent(this.lanes);
        const most = Math.max(1, ...this.lanes.map((lane) => lane.device.peak[lane.store.state.metric].bytes));
        return {
            box: {
                x: LEFT,
                y: 2,
                width: Math.max(10, this.surface.width - LEFT - RIGHT),
                height: this.surface.height - 4,
            },
            from,
            to,
            top: most,
        };
    }

    #fetch(): void {
        if (this.surface.width === 0) return;
        for (const strip of this.#strips) {
            const { lane } = strip;
            const { axis, metric } = lane.store.state;
            const { device } = lane.device;
            const plot = this.#plot();
            const columns = Math.round(plot.box.width);
            const key = [device, axis, metric, columns, plot.from, plot.to].join();
            if (key === strip.key) continue;
            strip.key = key;
            const [from, to] = lane.extent();
            strip.latest.run(async () => {
                try {
                    strip.curve = await lane.recording.client.ask('curve', [device, metric, axis, from, to, columns]);
                    this.surface.invalidate();
                } catch (error) {
                    this.fail(error);
                }
            });
        }
    }

    #draw(): void {
        const shown = theme();
        const { pen, width, height } = this.surface;
        const plot = this.#plot();
        const { box } = plot;
        const bottom = box.y + box.height;
        pen.rect({ x: 0, y: 0, width, height }, BACKGROUND[shown]);
        for (const { lane, curve } of this.#strips) {
            if (!curve) continue;
            const [from, to] = lane.extent();
            const step = (to - from) / curve.values.length;
            const points = [toX(plot, from), bottom];
            curve.values.forEach((value, at) => {
                const y = toY(plot, value);
                points.push(toX(plot, from + at * step), y, toX(plot, from + (at + 1) * step), y);
            });
            points.push(toX(plot, to), bottom);
            if (lane.second) pen.line(points.slice(2, -2), { stroke: ACCENT[shown] });
            else pen.area(points, GRID[shown]);
            for (const oom of lane.device.ooms) {
                const x = Math.min(toX(plot, lane.x(oom.instant)), box.x + box.width - 1);
                pen.rect({ x, y: box.y, width: 1, height: box.height }, ALARM[shown]);
            }
            pen.rect({ x: toX(plot, lane.x(lane.at)) - 0.5, y: box.y, width: 1.5, height: box.height }, ACCENT[shown]);
        }
        pen.line([box.x, bottom + 0.5, box.x + box.width, bottom + 0.5], { stroke: GRID[shown] });
        const { from, to } = this.lanes[0].store.state;
        const left = toX(plot, from);
        const right = Math.max(left + 3, toX(plot, to));
        if (right - left < box.width - 1) {
            for (const [start, end] of [
                [box.x, left],
                [right, box.x + box.width],
            ]) {
                pen.rect(
                    { x: start, y: box.y, width: Math.max(0, end - start), height: box.height },
                    BACKGROUND[shown],
                    0.55,
                );
            }
            pen.outline(
                { x: left + 0.5, y: box.y + 0.5, width: Math.max(2, right - left - 1), height: box.height - 1 },
                { stroke: MUTED[shown], width: 1.5 },
            );
        }
    }

    /** A press centers the visible part; a drag moves it, or draws a new window if it starts outside. */
    #listen(): void {
        const { canvas } = this.surface;
        const { store } = this.lanes[0];
        const at = (event: PointerEvent) => fromX(this.#plot(), event.clientX - canvas.getBoundingClientRect().left);
        let held: { start: number; from: number; to: number; inside: boolean } | null = null;
        canvas.addEventListener('pointerdown', (event) => {
            const { from, to } = store.state;
            const start = at(event);
            held = {
                start,
                from,
                to,
                inside: start >= from && start <= to && to - from < 0.98 * (this.#plot().to - this.#plot().from),
            };
            canvas.setPointerCapture(event.pointerId);
        });
        canvas.addEventListener('pointermove', (event) => {
            if (!held) return;
            const now = at(event);
            const whole = extent(this.lanes);
            if (held.inside) store.set(clamped(held.from + now - held.start, held.to + now - held.start, whole));
            else if (now !== held.start)
                store.set(clamped(Math.min(now, held.start), Math.max(now, held.start), whole));
        });
        canvas.addEventListener('pointerup', (event) => {
            if (
                held &&
                !held.inside &&
                Math.abs(at(event) - held.start) * this.#plot().box.width < 3 * (this.#plot().to - this.#plot().from)
            ) {
                const span = held.to - held.from;
                store.set(clamped(held.start - span / 2, held.start + span / 2, extent(this.lanes)));
            }
            held = null;
        });
    }
}
