/** What a page shows first: what a link requests, or the previous view. */

import type { DeviceFigures, Metric } from '../engine/engine.d.ts';
import { answerable } from './controls.ts';
import { devicesOf, isStill } from './lane.ts';
import { common, type Recording } from './recording.ts';
import { AS_RECORDED, type State } from './state.ts';

/** The device to start with: the first with a failed request, otherwise the one that holds the most, other than the host. */
function mainDevice({ figures: { devices } }: Recording): DeviceFigures {
    const failed = devices.find(({ ooms }) => ooms.length > 0);
    if (failed) return failed;
    const held = (device: DeviceFigures) => (device.device < 0 ? -1 : device.peak.allocated.bytes);
    return devices.reduce((most, device) => (held(device) > held(most) ? device : most));
}

/** The initial state: the whole range of a device, at its first failed request or its peak. */
export function begin(recordings: readonly Recording[]): State {
    const { device } = mainDevice(recordings[0]);
    const { by, hasSegments } = common(recordings);
    const still = isStill(recordings.map((each) => ({ device: each.device(device) })));
    return {
        device,
        axis: 'entry',
        from: 0,
        to: 1,
        metric: 'allocated',
        by: by.includes('site') ? 'site' : by[0],
        ...telling(recordings, device),
        mark: null,
        // Without a history, segments are the most informative view.
        tab: still && hasSegments ? 'segments' : 'table',
        flame: null,
        around: '',
        ...AS_RECORDED,
        vary: '',
        value: 0,
        listed: 'all',
        least: 0,
        packed: false,
        pinned: '',
        folded: '',
        selected: null,
        query: '',
        found: 0,
        fit: false,
    };
}

/** The requested state, as far as the files support it. */
export function asked(wanted: Partial<State>, initial: State, recordings: readonly Recording[]): State {
    const { by, hasTimes, hasSegments } = common(recordings);
    const isThere = devicesOf(recordings).some((each) => each.device === wanted.device);
    const device = isThere ? wanted.device! : initial.device;
    const state = { ...initial, ...telling(recordings, device), ...wanted, device };
    if (!by.includes(state.by)) state.by = initial.by;
    if (!hasTimes && (state.axis === 'time' || state.axis === 'folded')) state.axis = 'entry';
    const { selected } = state;
    const isOfSecond = selected !== null && 'second' in selected && selected.second;
    if (recordings.length === 1) return answerable({ ...state, selected: isOfSecond ? null : selected }, hasSegments);
    // Two files are compared, or two instants of one.
    return answerable({ ...state, mark: null, cures: '' }, hasSegments);
}

/** The most informative instant of a recording: its first failed request, or its peak. Two recordings are compared at peaks. */
function telling(recordings: readonly Recording[], device: number): { at: number; at2: number } {
    const [{ ooms }] = recordings.map((each) => each.device(device));
    const most = peaks(recordings, device, 'allocated');
    if (recordings.length > 1) return most;
    const [{ entries }] = recordings.map((each) => each.device(device));
    return entries <= 1 ? { ...most, at: entries } : { ...most, at: ooms[0]?.instant ?? most.at };
}

/** The instants of the peaks of recordings. */
function peaks(recordings: readonly Recording[], device: number, metric: Metric): { at: number; at2: number } {
    const [at, at2 = 0] = recordings.map((each) => each.device(device).peak[metric].instant);
    return { at, at2 };
}

/** The part of the state that stays when a second file is added; both are shown at their peaks. */
export function kept({ device, axis, metric, by, tab, query }: State, recordings: readonly Recording[]): Partial<State> {
    return { device, axis, metric, by, tab, query, ...peaks(recordings, device, metric) };
}

/** What a page shows first. */
export interface Opening {
    /** The link's state; empty without a link. */
    link: string;
    /** Whether the URL represents the view: not for a file that the page does not embed. */
    isLinked: boolean;
    /** What is shown without a link. */
    shown: string;
}
