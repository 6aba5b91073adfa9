/** Allocations as shapes over time: drawn into an image once, found again under the pointer. */

import type { Blocks } from '../engine/engine.d.ts';
import { BACKGROUND, channels, mix, OTHER, type Theme } from './colours.ts';

/** A part of a shape that keeps its offset. */
export interface Piece {
    /** First column, and the one behind the last. */
    from: number;
    to: number;
    /** Bytes below it. */
    offset: number;
}

/** Calls for each piece of a shape, from left to right. */
export function pieces(blocks: Blocks, shape: number, each: (piece: Piece) => void): void {
    const { starts, points, ends } = blocks;
    for (let at = starts[shape]; at < starts[shape + 1]; at++) {
        const to = at + 1 < starts[shape + 1] ? points[2 * at + 2] : ends[shape];
        each({ from: points[2 * at], to, offset: points[2 * at + 1] });
    }
}

/** The shape at a height in a column; -1 where there is none. */
export function shapeAt(blocks: Blocks, column: number, bytes: number): number {
    const { starts, points, ends } = blocks;
    for (let shape = 0; shape < blocks.allocations.length; shape++) {
        if (points[2 * starts[shape]] > column || ends[shape] <= column) continue;
        let [low, high] = [starts[shape], starts[shape + 1] - 1];
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (points[2 * middle] <= column) low = middle;
            else high = middle - 1;
        }
        const offset = points[2 * low + 1];
        if (bytes >= offset && bytes < offset + blocks.bytes[shape]) return shape;
    }
    return -1;
}

function word(hex: string): number {
    const [red, green, blue] = channels(hex);
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * The image of shapes, one pixel wide for each column, `height` pixels for `top` bytes. What lies above them is grey. Shapes
 * that are high enough have an edge, so that neighbours of one colour are told apart; those that are not meant step back.
 */
export function image(
    blocks: Blocks,
    height: number,
    top: number,
    theme: Theme,
    isMeant: (shape: number) => boolean,
): OffscreenCanvas {
    const columns = blocks.totals.length;
    const canvas = new OffscreenCanvas(columns, height);
    const context = canvas.getContext('2d', { alpha: false })!;
    const pixels = context.createImageData(columns, height);
    const words = new Uint32Array(pixels.data.buffer);
    const ground = BACKGROUND[theme];
    words.fill(word(ground));
    const scale = height / top;
    const y = (bytes: number) => Math.max(0, height - Math.round(bytes * scale));
    const other = word(mix(OTHER[theme], ground, 0.6));
    for (let at = 0; at < columns; at++) {
        for (let row = y(blocks.totals[at]); row < y(blocks.totals[at] - blocks.rest[at]); row++)
            words[row * columns + at] = other;
    }
    const fills = blocks.groups.map((group) =>
        [group[theme], mix(group[theme], ground, 0.25)].map((hex) => [word(hex), word(mix(hex, ground, 0.65))]),
    );
    for (let shape = 0; shape < blocks.allocations.length; shape++) {
        const [fill, edge] = fills[blocks.group[shape]][isMeant(shape) ? 0 : 1];
        const size = blocks.bytes[shape];
        pieces(blocks, shape, ({ from, to, offset }) => {
            const [above, below] = [y(offset + size), y(offset)];
            const hasEdge = below - above >= 3;
            for (let row = above; row < below; row++)
                words.fill(hasEdge && row === above ? edge : fill, row * columns + from, row * columns + to);
            if (hasEdge && from === blocks.points[2 * blocks.starts[shape]]) {
                for (let row = above; row < below; row++) words[row * columns + from] = edge;
            }
        });
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
}
