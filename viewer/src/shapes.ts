/** Allocations as shapes over time: drawn into an image, and found again under the pointer. */

import type { Blocks } from '../engine/engine.d.ts';
import { BACKGROUND, mix, OTHER, type Theme } from './colors.ts';
import { pixel } from './raster.ts';

/** A part of a shape with a constant offset. */
export interface Piece {
    /** The first column, and the one after the last. */
    from: number;
    to: number;
    /** Bytes below it. */
    offset: number;
}

/** Calls `each` for every piece of a shape, from left to right. */
export function pieces(blocks: Blocks, shape: number, each: (piece: Piece) => void): void {
    const { starts, points, ends } = blocks;
    for (let at = starts[shape]; at < starts[shape + 1]; at++) {
        const to = at + 1 < starts[shape + 1] ? points[2 * at + 2] : ends[shape];
        each({ from: points[2 * at], to, offset: points[2 * at + 1] });
    }
}

/** The bytes below a shape in a column; -1 if it is not there. */
function offsetIn(blocks: Blocks, shape: number, column: number): number {
    const { starts, points, ends } = blocks;
    if (points[2 * starts[shape]] > column || ends[shape] <= column) return -1;
    let [low, high] = [starts[shape], starts[shape + 1] - 1];
    while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (points[2 * middle] <= column) low = middle;
        else high = middle - 1;
    }
    return points[2 * low + 1];
}

/** The shape at a height in a column; -1 if there is none. */
export function shapeAt(blocks: Blocks, column: number, bytes: number): number {
    for (let shape = 0; shape < blocks.allocations.length; shape++) {
        const offset = offsetIn(blocks, shape, column);
        if (offset >= 0 && bytes >= offset && bytes < offset + blocks.bytes[shape]) return shape;
    }
    return -1;
}

/** The shapes of a column from the bottom up. */
export function stackAt(blocks: Blocks, column: number): number[] {
    const there: { shape: number; offset: number }[] = [];
    for (let shape = 0; shape < blocks.allocations.length; shape++) {
        const offset = offsetIn(blocks, shape, column);
        if (offset >= 0) there.push({ shape, offset });
    }
    return there.sort((a, b) => a.offset - b.offset).map(({ shape }) => shape);
}

/**
 * Writes the pixels of shapes, one wide for each column, `height` rows for `top` bytes. Above them is gray. Shapes that
 * are high enough have an edge, so that neighbors of one color can be distinguished; shapes outside the search are dimmed.
 */
export function paintShapes(
    pixels: Uint32Array,
    blocks: Blocks,
    height: number,
    top: number,
    theme: Theme,
    isMeant: (shape: number) => boolean,
): void {
    const columns = blocks.totals.length;
    const ground = BACKGROUND[theme];
    pixels.fill(pixel(ground));
    const scale = height / top;
    const y = (bytes: number) => Math.max(0, height - Math.round(bytes * scale));
    const other = pixel(mix(OTHER[theme], ground, 0.6));
    for (let at = 0; at < columns; at++) {
        const end = y(blocks.totals[at] - blocks.rest[at]);
        for (let row = y(blocks.totals[at]); row < end; row++) pixels[row * columns + at] = other;
    }
    const fills = blocks.groups.map((group) =>
        [group[theme], mix(group[theme], ground, 0.25)].map((hex) => [pixel(hex), pixel(mix(hex, ground, 0.65))]),
    );
    const { starts, points, ends } = blocks;
    for (let shape = 0; shape < blocks.allocations.length; shape++) {
        const [fill, edge] = fills[blocks.group[shape]][isMeant(shape) ? 0 : 1];
        const size = blocks.bytes[shape];
        const last = starts[shape + 1] - 1;
        // There may be a million pieces, most of them a few pixels wide: no calls in here.
        for (let at = starts[shape]; at <= last; at++) {
            const [above, below] = [y(points[2 * at + 1] + size), y(points[2 * at + 1])];
            if (above >= below) continue;
            const from = points[2 * at];
            const to = at < last ? points[2 * at + 2] : ends[shape];
            const hasEdge = below - above >= 3;
            for (let row = above; row < below; row++) {
                const start = row * columns;
                const color = hasEdge && row === above ? edge : fill;
                if (to - from > 32) pixels.fill(color, start + from, start + to);
                else for (let place = start + from; place < start + to; place++) pixels[place] = color;
            }
            if (hasEdge && at === starts[shape])
                for (let row = above; row < below; row++) pixels[row * columns + from] = edge;
        }
    }
}
