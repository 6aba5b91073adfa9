/** The steps that differ from the median step. */

import type { Overlay } from '../engine/engine.d.ts';

/** A step that differs from the median, counted from 0, by how many bytes. */
export interface Differing {
    step: number;
    above: number;
    below: number;
}

/** The steps that differ from the median, the farthest from it first. */
export function differing({ above, below }: Pick<Overlay, 'above' | 'below'>): Differing[] {
    const all = Array.from(above, (bytes, step) => ({ step, above: bytes, below: below[step] }));
    const most = (of: Differing) => Math.max(of.above, of.below);
    return all.filter((each) => most(each) > 0).sort((a, b) => most(b) - most(a) || a.step - b.step);
}
