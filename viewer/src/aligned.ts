/** The axis of steps, on which steps of several recordings start at the same position. */

import type { Axis, Steps } from '../engine/engine.d.ts';
import { timeAxis } from './folds.ts';
import { name } from './format.ts';
import type { Lane } from './lane.ts';
import type { Recording } from './recording.ts';

/** The length of a step on the axis of steps: the same for all steps, and for the part after the last one. */
export const STEP = 1e6;

/** The position of an entry on the axis of steps, as the engine computes it. */
export function alongSteps(steps: readonly Omit<Steps['steps'][number], 'name'>[], entries: number, entry: number): number {
    let [low, high] = [0, steps.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        if (steps[middle].to <= entry) low = middle + 1;
        else high = middle;
    }
    const from = low > 0 ? steps[low - 1].to : 0;
    const to = low < steps.length ? steps[low].to : Math.max(entries, from + 1);
    return STEP * (low + (entry - from) / (to - from));
}

/** Why the steps of recordings cannot be aligned; `null` if they can. */
export function whyNotAligned(recordings: readonly Recording[], device: number): string | null {
    for (const recording of recordings) {
        const own = recording.device(device).device;
        if (recording.steps(own).length === 0) return `${name(recording.name, 60)}: ${recording.whyNoSteps(own)}`;
    }
    return null;
}

/**
 * The axis of steps if all recordings have steps that can be aligned, otherwise `other`; the axis of folded time if there is one
 * recording with folds, otherwise that of time; any other axis stays.
 */
export function possibleAxis(axis: Axis, recordings: readonly Recording[], device: number, other: Axis): Axis {
    if (axis === 'folded') return timeAxis(recordings);
    const isPossible = axis !== 'step' || (recordings.length > 1 && whyNotAligned(recordings, device) === null);
    return isPossible ? axis : other;
}

/** Moves a lane to an instant; if steps are aligned, moves the other lanes to the same position. */
export function lookAt(lanes: readonly Lane[], lane: Lane, instant: number): void {
    lane.at = instant;
    const { axis } = lane.store.state;
    if (axis !== 'step') return;
    const x = lane.x(instant);
    for (const other of lanes) if (other !== lane) other.at = other.recording.instant(other.device.device, x, axis);
}
