/** Annotations and steps as ribbons below a plot. */

import type { Lane } from './lane.ts';
import type { Pen } from './pen.ts';
import { fromX, type Plot, toX } from './plot.ts';
import { RIBBONS, TEXT, type Theme } from './colours.ts';
import { name } from './format.ts';

export const RIBBON = 15;
/** Deeper ones are not drawn. */
const ROWS = 4;

export interface Span {
    name: string;
    from: number;
    to: number;
}

/** Rows of spans, each in order and without overlap. */
export type Ribbons = readonly (readonly Span[])[];

/** The annotations of a lane by depth, or its steps where nothing is annotated. */
export function ribbons(lane: Lane): Ribbons {
    const { device } = lane.device;
    const annotations = lane.recording.annotations(device);
    if (annotations.length === 0) {
        const steps = lane.recording
            .steps(device)
            .map((step, at) => ({ name: `step ${at + 1}`, from: step.from, to: step.to }));
        return steps.length > 0 ? [steps] : [];
    }
    const rows: Span[][] = [];
    for (const each of annotations) {
        if (each.depth < ROWS) (rows[each.depth] ??= []).push(each);
    }
    return rows.filter((row) => row !== undefined).map((row) => row.sort((a, b) => a.from - b.from));
}

/** Draws them from `y` on. Of those that share a pixel one is drawn, so that any number costs a screen's width. */
export function drawRibbons(pen: Pen, plot: Plot, y: number, rows: Ribbons, lane: Lane, theme: Theme): void {
    const { box } = plot;
    const right = box.x + box.width;
    rows.forEach((row, depth) => {
        let at = firstBehind(row, plot.from, lane);
        let drawn = box.x;
        while (at < row.length) {
            const span = row[at];
            const left = Math.max(drawn, toX(plot, lane.x(span.from)));
            if (left >= right) break;
            const end = Math.min(right, Math.max(toX(plot, lane.x(span.to)), left + 1));
            const place = { x: left, y: y + depth * RIBBON, width: Math.max(1, end - left - 1), height: RIBBON - 2 };
            pen.rect(place, RIBBONS[at % 2][theme]);
            if (place.width > 24) {
                const text = fitting(pen, name(span.name, 60), place.width - 6);
                pen.text(place.x + place.width / 2, place.y + 10, text, {
                    fill: TEXT[theme],
                    anchor: 'middle',
                    size: 10.5,
                });
            }
            drawn = end;
            const next = firstBehind(row, plot.from + ((end - box.x) / box.width) * (plot.to - plot.from), lane);
            at = Math.max(at + 1, next);
        }
    });
}

/** The span at a point, given that ribbons begin at `top`. */
export function spanAt(plot: Plot, top: number, rows: Ribbons, lane: Lane, x: number, y: number): Span | null {
    const row = rows[Math.floor((y - top) / RIBBON)];
    if (!row || x < plot.box.x || x > plot.box.x + plot.box.width) return null;
    const at = fromX(plot, x);
    const span = row[firstBehind(row, at, lane)];
    return span && lane.x(span.from) <= at ? span : null;
}

/** The first span that ends behind `x`. */
function firstBehind(row: readonly Span[], x: number, lane: Lane): number {
    let [low, high] = [0, row.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        if (lane.x(row[middle].to) > x) high = middle;
        else low = middle + 1;
    }
    return low;
}

/** As much of a text as fits, its middle cut. */
export function fitting(pen: Pen, text: string, width: number, mono = false): string {
    const style = { fill: '', size: 10.5, mono };
    const all = pen.measure(text, style);
    if (all <= width) return text;
    const room = Math.floor((text.length * width) / all) - 1;
    return room < 3 ? '' : name(text, room);
}
