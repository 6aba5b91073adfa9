/** The axis of folded time, on which long periods without activity are shortened. */

import type { Axis, Folds } from '../engine/engine.d.ts';
import type { Tick } from './plot.ts';

/** The position of a time on the axis, as the engine computes it. */
export function foldedAt({ periods, length }: Folds, time: number): number {
    let position = time;
    for (const [from, to] of periods) position -= Math.max(0, Math.min(time, to) - from) * (1 - length / (to - from));
    return position;
}

/** The axis of time that recordings can have together: a fold is part of one recording. */
export function timeAxis(recordings: readonly { figures: { folds: Folds } }[]): Axis {
    return recordings.length === 1 && recordings[0].figures.folds.periods.length > 0 ? 'folded' : 'time';
}

/** The ticks between two positions, given those of times: at the same distance in all parts that folds divide. */
export function foldedTicks(folds: Folds, from: number, to: number, times: (from: number, to: number) => Tick[]): Tick[] {
    const ticks: Tick[] = [];
    let start = Number.NEGATIVE_INFINITY;
    for (const [end, next] of [...folds.periods, [Number.POSITIVE_INFINITY, 0]]) {
        // Between two folds, positions are times less a constant.
        const omitted = Number.isFinite(start) ? start - foldedAt(folds, start) : 0;
        const [first, last] = [Math.max(from + omitted, start), Math.min(to + omitted, end)];
        if (first < last) ticks.push(...times(first, last).map(({ at, text }) => ({ at: at - omitted, text })));
        start = next;
    }
    return ticks;
}
