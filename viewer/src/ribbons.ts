/** Annotations and steps as ribbons below a plot. */

import type { Annotation, Axis, DeviceFigures } from '../engine/engine.d.ts';
import { STEP } from './aligned.ts';
import type { Lane } from './lane.ts';
import type { Pen, TextStyle } from './pen.ts';
import type { Recording } from './recording.ts';
import { fromX, type Plot, toX } from './plot.ts';
import { type Color, onTop, RIBBONS, TEXT, type Theme } from './colors.ts';
import { foldedAt } from './folds.ts';
import { name } from './format.ts';

export const RIBBON = 15;
/** Deeper annotations are not drawn. */
const ROWS = 4;

/** The entries of an annotation or step: those from its first instant, which is before it, to its last one. */
export interface Span {
    name: string;
    /** That of a phase; others are gray in turn. */
    color?: Color;
    from: number;
    to: number;
    from_us: number;
    to_us: number;
    /** Its start and end on the axis of folded time. */
    from_folded: number;
    to_folded: number;
    /** Its start on the axis of steps. */
    from_step: number;
    to_step: number;
}

/** Rows of spans, each in order and without overlap. */
export type Ribbons = readonly (readonly Span[])[];

/** The annotations of a lane by depth, or its steps if there are no annotations. */
export function ribbons(lane: Lane): Ribbons {
    const annotations = annotationRows(lane.recording, lane.device);
    if (annotations.length > 0) return annotations;
    const steps = stepRow(lane.recording, lane.device);
    return steps.length > 0 ? [steps] : [];
}

/** The annotations of a device by depth. */
export function annotationRows(recording: Recording, { device }: DeviceFigures): Ribbons {
    const rows: Span[][] = [];
    for (const each of recording.annotations(device)) {
        const { depth, from, to } = each;
        if (depth < ROWS) (rows[depth] ??= []).push({ ...each, ...inSteps(recording, device, from, to), ...inFolds(recording, each) });
    }
    return rows.filter((row) => row !== undefined).map((row) => row.sort((a, b) => a.from_us - b.from_us));
}

/** The steps of a device. */
export function stepRow(recording: Recording, device: DeviceFigures): readonly Span[] {
    return recording
        .steps(device.device)
        .map(({ from, to }, at) => {
            // A step without entries also has a position.
            const place = { from_step: at * STEP, to_step: (at + 1) * STEP };
            return { name: `step ${at + 1}`, from, to, ...times(recording, device, from, to), ...place };
        });
}

/** The times of entries, which have no duration: from the time of the first one to the time of the one after the last. */
export function times(
    recording: Recording,
    { device, entries }: DeviceFigures,
    from: number,
    to: number,
): Pick<Span, 'from_us' | 'to_us' | 'from_folded' | 'to_folded' | 'from_step' | 'to_step'> {
    const time = (instant: number) => recording.x(device, Math.min(instant + 1, entries), 'time');
    const us = { from_us: time(from), to_us: time(to) };
    return { ...us, ...inFolds(recording, us), ...inSteps(recording, device, from, to) };
}

function inFolds({ figures }: Recording, { from_us, to_us }: Pick<Span, 'from_us' | 'to_us'>): Pick<Span, 'from_folded' | 'to_folded'> {
    return { from_folded: foldedAt(figures.folds, from_us), to_folded: foldedAt(figures.folds, to_us) };
}

function inSteps(recording: Recording, device: number, from: number, to: number): Pick<Span, 'from_step' | 'to_step'> {
    return { from_step: recording.along(device, from), to_step: recording.along(device, to) };
}

/** The annotations around the entry before an instant, the outermost first. */
export function openAt(annotations: readonly Annotation[], instant: number): Annotation[] {
    const open = annotations.filter((each) => each.from < instant && instant <= each.to);
    return open.sort((a, b) => a.depth - b.depth);
}

/** Where a span starts and ends on an axis: for entries, it extends to the next entry. */
export function edgesOf(span: Span, axis: Axis): [number, number] {
    if (axis === 'step') return [span.from_step, span.to_step];
    if (axis === 'folded') return [span.from_folded, span.to_folded];
    return axis === 'time' ? [span.from_us, span.to_us] : [span.from + 1, span.to + 1];
}

/** Draws them from `y` on. One of those that share a pixel is drawn, so that the cost is limited by the screen's width. */
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
            const fill = (span.color ?? RIBBONS[at % 2])[theme];
            pen.rect(place, fill);
            if (place.width > 24) {
                const text = fitting(pen, name(span.name, 60), place.width - 6);
                pen.text(place.x + place.width / 2, place.y + 10, text, {
                    fill: span.color ? onTop(fill) : TEXT[theme],
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

/** The span at a point, given that ribbons start at `top`. */
export function spanAt(plot: Plot, top: number, rows: Ribbons, axis: Axis, x: number, y: number): Span | null {
    const row = rows[Math.floor((y - top) / RIBBON)];
    if (!row || x < plot.box.x || x > plot.box.x + plot.box.width) return null;
    const at = fromX(plot, x);
    const span = row[firstBehind(row, at, axis)];
    return span && edgesOf(span, axis)[0] <= at ? span : null;
}

/** The first span that ends after `x`. */
function firstBehind(row: readonly Span[], x: number, axis: Axis): number {
    let [low, high] = [0, row.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        if (edgesOf(row[middle], axis)[1] > x) high = middle;
        else low = middle + 1;
    }
    return low;
}

/** As much of a text as fits, cut at its end, since the start distinguishes labels; empty if hardly any of it fits. */
export function fitting(pen: Pen, text: string, width: number, style: Omit<TextStyle, 'fill'> = { size: 10.5 }): string {
    const measure = (part: string) => pen.measure(part, { ...style, fill: '' });
    const all = measure(text);
    if (all <= width) return text;
    let room = Math.floor((text.length * width) / all);
    while (room > 2 && measure(`${text.slice(0, room)}…`) > width) room--;
    return room < 3 ? '' : `${text.slice(0, room)}…`;
}
