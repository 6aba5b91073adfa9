/** The blocks of a segment as they are drawn: those thinner than a pixel together. */

import type { SegmentMap } from '../engine/engine.d.ts';

type Block = SegmentMap['segments'][number]['blocks'][number];

/** Something that takes bytes from an offset on. */
interface Extent {
    offset: number;
    bytes: number;
}

/** What is drawn as one block: it looks like the one that takes most of it. */
export interface Run extends Extent {
    block: Block;
}

/** The first that ends behind an offset; they are in order, and do not overlap. */
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
 * Blocks in address order, as runs of a pixel at most, which takes `pixel` bytes, and larger blocks as they are: no more than
 * two for each pixel.
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
