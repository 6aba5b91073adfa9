/** Annotations and steps as ribbons below a plot. */

import type { Annotation, Axis } from '../engine/engine.d.ts';
import type { Lane } from './lane.ts';
import type { Pen } from './pen.ts';
import { fromX, type Plot, toX } from './plot.ts';
import { RIBBONS, TEXT, type Theme } from './colours.ts';
import { name } from './format.ts';

export const RIBBON = 15;
/** Deeper ones are not drawn. */
const ROWS = 4;

/** The entries of an annotation or step: those that lead from its first instant, which is before it, to its last one. */
export interface Span {
    name: string;
    from: number;
    to: number;
    from_us: number;
    to_us: number;
}

/** Rows of spans, each in order and without overlap. */
export type Ribbons = readonly (readonly Span[])[];

/** The annotations of a lane by depth, or its steps where nothing is annotated. */
export function ribbons(lane: Lane): Ribbons {
    const { device, entries } = lane.device;
    const { recording } = lane;
    const annotations = recording.annotations(device);
    if (annotations.length === 0) {
        // A step has no time of its own: it lasts from its first entry to that of the next one.
        const time = (instant: number) => recording.x(device, Math.min(instant + 1, entries), 'time');
        const steps = recording.steps(device).map(({ from, to }, at) => {
            return { name: `step ${at + 1}`, from, to, from_us: time(from), to_us: time(to) };
        });
        return steps.length > 0 ? [steps] : [];
    }
    const rows: Span[][] = [];
    for (const each of annotations) {
        if (each.depth < ROWS) (rows[each.depth] ??= []).push(each);
    }
    return rows.filter((row) => row !== undefined).map((row) => row.sort((a, b) => a.from_us - b.from_us));
}

/** Those of some annotations that the entry before an instant lies in, the outermost first. */
export function openAt(annotations: readonly Annotation[], instant: number): Annotation[] {
    const open = annotations.filter((each) => each.from < instant && instant <= each.to);
    return open.sort((a, b) => a.depth - b.depth);
}

/** Where a span begins and ends on an axis: over its entries' instants it goes to where the next entry is. */
export function edgesOf(span: Span, axis: Axis): [number, number] {
    return axis === 'time' ? [span.from_us, span.to_us] : [span.from + 1, span.to + 1];
}

/** Draws them from `y` on. Of those that share a pixel one is drawn, so that any number costs a screen's width. */
export function drawRibbons(pen: Pen, plot: Plot, y: number, rows: Ribbons, axis: Axis, theme: Theme): void {
    const { box } = plot;
    const right = box.x + box.width;
    rows.forEach((row, depth) => {
        let at = firstBehind(row, plot.from, axis);
        let drawn = box.x;
        while (at < row.length) {
            const span = row[at];
            const [from, to] = edgesOf(span, axis);
            const left = Math.max(drawn, toX(plot, from));
            if (left >= right) break;
            const end = Math.min(right, Math.max(toX(plot, to), left + 1));
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
            const next = firstBehind(row, plot.from + ((end - box.x) / box.width) * (plot.to - plot.from), axis);
            at = Math.max(at + 1, next);
        }
    });
}

/** The span at a point, given that ribbons begin at `top`. */
export function spanAt(plot: Plot, top: number, rows: Ribbons, axis: Axis, x: number, y: number): Span | null {
    const row = rows[Math.floor((y - top) / RIBBON)];
    if (!row || x < plot.box.x || x > plot.box.x + plot.box.width) return null;
    const at = fromX(plot, x);
    const span = row[firstBehind(row, at, axis)];
    return span && edgesOf(span, axis)[0] <= at ? span : null;
}

/** The first span that ends behind `x`. */
function firstBehind(row: readonly Span[], x: number, axis: Axis): number {
    let [low, high] = [0, row.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        if (edgesOf(row[middle], axis)[1] > x) high = middle;
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
