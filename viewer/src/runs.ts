/** The blocks of a segment as they are drawn: blocks thinner than a pixel are combined. */

import type { SegmentMap } from '../engine/engine.d.ts';

type Block = SegmentMap['segments'][number]['blocks'][number];

/** Something with bytes from an offset on. */
interface Extent {
    offset: number;
    bytes: number;
}

/** What is drawn as one block: it looks like the block with the most bytes in it. */
export interface Run extends Extent {
    block: Block;
}

/** The first one that ends after an offset; they are in order, and do not overlap. */
export function behind(extents: readonly Extent[], offset: number): number {
    let [low, high] = [0, extents.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        if (extents[middle].offset + extents[middle].bytes > offset) high = middle;
        else low = middle + 1;
    }
    return low;
}

/**
 * Blocks in address order: small ones as runs of at most a pixel, which represents `pixel` bytes, and larger ones individually.
 * These are at most two for each pixel.
 */
export function runs(blocks: readonly Block[], pixel: number): Run[] {
    const made: Run[] = [];
    let open: Run | null = null;
    for (const block of blocks) {
        const { offset, bytes } = block;
        if (open && open.offset + open.bytes === offset && offset + bytes - open.offset <= pixel) {
            open.bytes += bytes;
            if (bytes > open.block.bytes) open.block = block;
        } else {
            open = { offset, bytes, block };
            made.push(open);
        }
    }
    return made;
}
