/** Where segments lie in their picture: one behind the other, in rows, by what they are for and by address. */

import type { SegmentMap } from '../engine/engine.d.ts';
import { bytes, whole } from './format.ts';
import type { Run } from './runs.ts';

/** Pixels of a row and between two, and of a line of text. */
export const ROW = 20;
export const GAP = 5;
const HEAD = 22;

type Segment = SegmentMap['segments'][number];

/** Where a segment begins: a row and a place in it. */
export interface Place {
    segment: Segment;
    /** Pixels from the top of all of it. */
    y: number;
    /** Bytes from the left edge. */
    start: number;
    /** What is drawn of it, made when it comes into sight. */
    runs: Run[] | null;
}

/** A line of text above segments. */
export interface Head {
    text: string;
    y: number;
}

/** Lays out segments in rows of `row` bytes, `gap` bytes between two; longer ones take several rows. */
export function layOut(map: SegmentMap, row: number, gap: number): { places: Place[]; heads: Head[]; height: number } {
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
        const text = stray === 1 ? '1 block lies in no segment' : `${whole(stray)} blocks lie in no segment`;
        heads.push({ text: `${text}: the recording contradicts itself`, y });
        y += HEAD;
    }
    for (const [kind, segments] of kinds) {
        const total = segments.reduce((sum, segment) => sum + segment.bytes, 0);
        heads.push({
            text: `${kind}: ${whole(segments.length)} ${segments.length === 1 ? 'segment' : 'segments'}, ${bytes(total)}`,
            y,
        });
        y += HEAD;
        let at = 0;
        for (const segment of segments) {
            if (at > 0 && at + Math.min(segment.bytes, row) > row) {
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
    return { places, heads, height: y + 10 };
}

/** What a segment is for. */
export function describe(segment: Segment): string {
    const parts = [segment.expandable ? 'expandable' : segment.type];
    if (segment.pool !== null) parts.push(`pool ${segment.pool}`);
    if (segment.stream !== null) parts.push(`stream ${segment.stream}`);
    return parts.join(', ');
}
