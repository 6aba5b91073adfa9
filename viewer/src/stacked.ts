/** Bands of bytes in columns, stacked: as an image for the screen, and as areas for files. */

import type { Bands, By } from '../engine/engine.d.ts';
import { mix, BACKGROUND, type Theme } from './colors.ts';
import type { Pen } from './pen.ts';
import { type Plot, toX, toY } from './plot.ts';
import { pixel } from './raster.ts';

/** Columns between two x. */
export interface Stretch {
    from: number;
    to: number;
    columns: number;
}

/** The column that contains an x; -1 outside. */
export function column(stretch: Stretch, x: number): number {
    if (x < stretch.from || x >= stretch.to) return -1;
    return Math.min(
        stretch.columns - 1,
        Math.floor(((x - stretch.from) / (stretch.to - stretch.from)) * stretch.columns),
    );
}

/** The visible range and a quarter as much on both sides, in columns of a pixel that stay in place while panning: no flicker. */
export function around(from: number, to: number, pixels: number, [first, end]: readonly [number, number]): Stretch {
    const step = (to - from) / pixels;
    const margin = Math.ceil(pixels / 4);
    const start = Math.max(Math.floor((from - first) / step) - margin, 0);
    const stop = Math.min(Math.ceil((to - first) / step) + margin, Math.ceil((end - first) / step - 1e-6));
    const columns = Math.max(1, stop - start);
    return { from: first + start * step, to: first + (start + columns) * step, columns };
}

/** Whether all visible data is within a stretch. */
export function covers(stretch: Stretch, from: number, to: number, [first, end]: readonly [number, number]): boolean {
    const slack = (to - from) * 1e-6;
    return stretch.from <= Math.max(from, first) + slack && stretch.to >= Math.min(to, end) - slack;
}

/** Bands of categories from the bottom up: constant ones first, varying ones above. As in the pictures. */
const CATEGORIES = [
    'parameter',
    'buffer',
    'gradient',
    'optimizer_state',
    'model_state',
    'before_recording',
    'communication',
    'workspace',
    'kv_cache',
    'input',
    'activation',
    'temporary',
    'unknown',
];
/** The same for phases: the optimizer's state stays, and backward uses what forward keeps. */
const PHASES = ['other', 'optimizer', 'data', 'forward', 'backward'];

/** Bands without their own name. */
export const OTHERS = '(other)';

/**
 * The same bands in an order that does not depend on the range: by category if these are known, or by phase; within one as in
 * `before`, the order of the whole run, and groups that are not in it above them.
 */
export function ordered(bands: Bands, columns: number, before: readonly string[], by: By): Bands {
    const place = (order: readonly string[], name: string) => {
        const at = order.indexOf(name);
        return at < 0 ? order.length : at;
    };
    const rank = ({ label, category }: Bands['groups'][number]): [number, number] =>
        label === OTHERS
            ? [CATEGORIES.length + 1, 0]
            : [by === 'phase' ? place(PHASES, label) : place(CATEGORIES, category ?? ''), place(before, label)];
    const rows = bands.groups.map((group, row) => ({ row, rank: rank(group) }));
    // The sort is stable.
    rows.sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1]);
    const values = new Float64Array(bands.values.length);
    rows.forEach(({ row }, at) => {
        values.set(bands.values.subarray(row * columns, (row + 1) * columns), at * columns);
    });
    return { ...bands, groups: rows.map(({ row }) => bands.groups[row]), values };
}

/** The upper edge of each band in each column: sums from the bottom up. */
export function edges(bands: Bands, columns: number): Float64Array {
    const sums = Float64Array.from(bands.values);
    for (let at = columns; at < sums.length; at++) sums[at] += sums[at - columns];
    return sums;
}

/** The band at a height in a column; -1 above all of them. */
export function bandAt(sums: Float64Array, columns: number, at: number, bytes: number): number {
    if (bytes < 0) return -1;
    for (let row = 0; row * columns < sums.length; row++) {
        if (bytes < sums[row * columns + at]) return row;
    }
    return -1;
}

/** Bands that are this many pixels high have a line between them and the next one of their category, which has the same hue... */
const PARTED = 4;
/** ...where their edge is no steeper than this many pixels for each column: steeper edges would be dots. */
const FLAT = 2;

/** For each band, whether the one above it is of the same category. */
export function touching({ groups }: Bands): boolean[] {
    return groups.map(({ category }, row) => category !== null && groups[row + 1]?.category === category);
}

/** Writes the pixels of bands, one wide for each column, `height` rows for `top` bytes. */
export function paintBands(
    pixels: Uint32Array,
    sums: Float64Array,
    columns: number,
    colors: readonly string[],
    isTouching: readonly boolean[],
    height: number,
    top: number,
    ground: string,
): void {
    const empty = pixel(ground);
    const rows = colors.map(pixel);
    const scale = height / top;
    const last = new Float64Array(rows.length).fill(-height);
    for (let at = 0; at < columns; at++) {
        let below = height;
        for (let row = 0; row < rows.length; row++) {
            const above = Math.max(0, height - Math.round(sums[row * columns + at] * scale));
            for (let y = above; y < below; y++) pixels[y * columns + at] = rows[row];
            const isParted = isTouching[row] && below - above >= PARTED && Math.abs(above - last[row]) <= FLAT;
            if (isParted) pixels[above * columns + at] = empty;
            last[row] = above;
            below = Math.min(below, above);
        }
        for (let y = 0; y < below; y++) pixels[y * columns + at] = empty;
    }
}

/** The colors of bands; bands outside the search are dimmed. */
export function shades(bands: Bands, theme: Theme, isMeant: (row: number) => boolean): string[] {
    return bands.groups.map((group, row) => (isMeant(row) ? group[theme] : mix(group[theme], BACKGROUND[theme], 0.3)));
}

/** Draws one band as an area: exact, for files. */
export function drawBand(
    pen: Pen,
    plot: Plot,
    stretch: Stretch,
    sums: Float64Array,
    row: number,
    fill: string,
    opacity = 1,
): void {
    const { columns } = stretch;
    const width = (stretch.to - stretch.from) / columns;
    const first = Math.max(0, column(stretch, plot.from));
    const last = plot.to >= stretch.to ? columns - 1 : column(stretch, plot.to);
    const low = (at: number) => (row === 0 ? 0 : sums[(row - 1) * columns + at]);
    const high = (at: number) => sums[row * columns + at];
    for (let start = first; start <= last;) {
        // Equal columns are one rectangle; runs of nonempty columns are one area.
        if (high(start) <= low(start)) {
            start++;
            continue;
        }
        const [above, below]: [number[], number[]] = [[], []];
        let at = start;
        while (at <= last && high(at) > low(at)) {
            let end = at + 1;
            while (end <= last && high(end) === high(at) && low(end) === low(at)) end++;
            const [left, right] = [toX(plot, stretch.from + at * width), toX(plot, stretch.from + end * width)];
            above.push(left, toY(plot, high(at)), right, toY(plot, high(at)));
            below.push(toY(plot, low(at)), left, toY(plot, low(at)), right);
            at = end;
        }
        pen.area([...above, ...below.reverse()], fill, opacity);
        start = at;
    }
}

/** Draws a curve of columns as steps. */
export function drawSteps(
    pen: Pen,
    plot: Plot,
    stretch: Stretch,
    values: Float64Array,
    stroke: string,
    width = 1,
    dash: number[] = [],
): void {
    const step = (stretch.to - stretch.from) / stretch.columns;
    const first = Math.max(0, column(stretch, plot.from));
    const last = plot.to >= stretch.to ? stretch.columns - 1 : column(stretch, plot.to);
    const points: number[] = [];
    for (let at = first; at <= last; at++) {
        if (at > first && at < last && values[at] === values[at - 1] && values[at] === values[at + 1]) continue;
        // The values after this are unknown.
        if (Number.isNaN(values[at])) break;
        const y = toY(plot, values[at]);
        points.push(toX(plot, stretch.from + at * step), y, toX(plot, stretch.from + (at + 1) * step), y);
    }
    if (points.length > 0) pen.line(points, { stroke, width, dash });
}
