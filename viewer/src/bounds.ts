/** Text for figures that are only bounds. */

import type { DeviceFigures, Metric } from '../engine/engine.d.ts';
import { bound, bytes } from './format.ts';

type Peak = DeviceFigures['peak'][Metric];

/** How two peaks differ: with bounds, the difference may be unknown, or even which one is higher. */
export function between(a: Peak, b: Peak): string {
    const change = b.bytes - a.bytes;
    const size = bytes(Math.abs(change));
    if (a.bound === null && b.bound === null) {
        if (change === 0) return 'Both peaks are the same';
        return `The peak of B is ${size} ${change > 0 ? 'higher' : 'lower'} than that of A`;
    }
    // The least by which B can exceed A, or A can exceed B.
    const isAbove = (of: Peak) => of.bound === null || of.bound === 'lower';
    const isBelow = (of: Peak) => of.bound === null || of.bound === 'upper';
    if (change > 0 && isAbove(b) && isBelow(a)) return `The peak of B is at least ${size} higher than that of A`;
    if (change < 0 && isBelow(b) && isAbove(a)) return `The peak of B is at least ${size} lower than that of A`;
    const [first, second] = [a, b].map((peak) => bound(peak.bound) + bytes(peak.bytes));
    return `It is unknown which peak is higher: A's is ${first}, B's is ${second}`;
}
