/** The positions of segments in their picture: by use and by address, each in its own rows or one after the other. */

import type { SegmentMap, Unserved } from '../engine/engine.d.ts';
import { bytes, counted } from './format.ts';
import type { Run } from './runs.ts';

/** Height of a row and of the gap between two, and of a line of text, in pixels. */
export const ROW = 18;
export const GAP = 3;
const HEAD = 22;

type Segment = SegmentMap['segments'][number];

/** Where a segment starts: a row and an offset in it. */
export interface Place {
    segment: Segment;
    /** Pixels from the top of the picture. */
    y: number;
    /** Bytes from the left edge. */
    start: number;
    /** The drawn parts, computed when it becomes visible. */
    runs: Run[] | null;
}

/** A failed request, or a free block next to it. */
export interface Bar {
    y: number;
    start: number;
    bytes: number;
    isRequest: boolean;
}

/** A line of text above segments. */
export interface Head {
    text: string;
    y: number;
    isAlarm?: boolean;
}

/** The layout, and its height. */
export interface LaidOut {
    places: Place[];
    heads: Head[];
    bars: Bar[];
    height: number;
}

/**
 * Lays out segments in rows of `row` bytes; longer ones take several rows. Each has its own rows, or follows the previous one,
 * `gap` bytes after it.
 */
export function layOut(map: SegmentMap, row: number, gap: number, isPacked: boolean): LaidOut {
    const bars: Bar[] = [];
    const places: Place[] = [];
    const heads: Head[] = [];
    const kinds = new Map<string, Segment[]>();
    for (const segment of map.segments) {
        const kind = describe(segment);
        const known = kinds.get(kind);
        if (known) known.push(segment);
        else kinds.set(kind, [segment]);
    }
    let y = 6;
    const { length: stray } = map.stray;
    if (stray > 0) {
        const text = counted(stray, 'block is not in any segment', 'blocks are not in any segment');
        heads.push({ text: `${text}: the recording contradicts itself`, y });
        y += HEAD;
    }
    if (map.failed) y = besides(map.failed, row, gap, y, heads, bars);
    const sizes = [...kinds].map(([kind, segments]) => {
        return { kind, segments, total: segments.reduce((sum, segment) => sum + segment.bytes, 0) };
    });
    // Most memory first.
    for (const { kind, segments, total } of sizes.sort((a, b) => b.total - a.total)) {
        heads.push({
            text: `${kind}: ${counted(segments.length, 'segment')}, ${bytes(total)}`,
            y,
        });
        y += HEAD;
        let at = 0;
        for (const segment of segments) {
            if (at > 0 && (!isPacked || at + Math.min(segment.bytes, row) > row)) {
                at = 0;
                y += ROW + GAP;
            }
            places.push({ segment, y, start: at, runs: null });
            const end = at + segment.bytes;
            y += Math.floor((end - 1) / row) * (ROW + GAP);
            at = (end % row) + gap;
        }
        y += ROW + GAP + 8;
    }
    return { places, heads, bars, height: y + 10 };
}

/** A failed request next to the free blocks that would have served it if they were larger; returns where the rest starts. */
function besides(failed: Unserved, row: number, gap: number, top: number, heads: Head[], bars: Bar[]): number {
    heads.push({ text: `The request that failed: ${bytes(failed.bytes)} · ${failed.site}`, y: top, isAlarm: true });
    let y = top + HEAD;
    bars.push({ y, start: 0, bytes: failed.bytes, isRequest: true });
    y += (Math.floor((failed.bytes - 1) / row) + 1) * (ROW + GAP);
    const blocks = counted(failed.holes, 'block');
    const largest = failed.holes > 0 ? `; the largest that it can use is ${bytes(failed.largest_bytes)}` : '';
    heads.push({ text: `Free in its pool and stream: ${bytes(failed.free_bytes)} in ${blocks}${largest}`, y });
    y += HEAD;
    let at = 0;
    for (const hole of failed.largest_holes) {
        if (at > 0 && at + hole > row) break;
        bars.push({ y, start: at, bytes: Math.min(hole, row), isRequest: false });
        at += hole + gap;
    }
    return y + (failed.holes > 0 ? ROW + GAP : 0) + 10;
}

/** The use of a segment. */
export function describe(segment: Segment): string {
    const parts = [segment.expandable ? 'expandable' : segment.type];
    if (segment.pool !== null) parts.push(`pool ${segment.pool}`);
    if (segment.stream !== null) parts.push(`stream ${segment.stream}`);
    return parts.join(', ');
}
