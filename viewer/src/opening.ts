/** What a page shows first: what a link asks for, or what was seen before. */

import type { DeviceFigures, Metric } from '../engine/engine.d.ts';
import { answerable } from './controls.ts';
import { devicesOf, isStill } from './lane.ts';
import { common, type Recording } from './recording.ts';
import { AS_RECORDED, type State } from './state.ts';

/** The device to begin with: the first on which a request failed, else of those that are no host the one that holds most. */
function mainDevice({ figures: { devices } }: Recording): DeviceFigures {
    const failed = devices.find(({ ooms }) => ooms.length > 0);
    if (failed) return failed;
    const held = (device: DeviceFigures) => (device.device < 0 ? -1 : device.peak.allocated.bytes);
    return devices.reduce((most, device) => (held(device) > held(most) ? device : most));
}

/** The state at the beginning: all of a device, at its first failed request, or its peak. */
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
        // Without a history, the segments say most.
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

/** What is asked for, as far as the files have it. */
export function asked(wanted: Partial<State>, initial: State, recordings: readonly Recording[]): State {
    const { by, hasTimes, hasSegments } = common(recordings);
    const isThere = devicesOf(recordings).some((each) => each.device === wanted.device);
    const device = isThere ? wanted.device! : initial.device;
    const state = { ...initial, ...telling(recordings, device), ...wanted, device };
    if (!by.includes(state.by)) state.by = initial.by;
    if (!hasTimes && state.axis === 'time') state.axis = 'entry';
    const { selected } = state;
    const isOfSecond = selected !== null && 'second' in selected && selected.second;
    if (recordings.length === 1) return answerable({ ...state, selected: isOfSecond ? null : selected }, hasSegments);
    // Two files are compared, or two instants of one.
    return answerable({ ...state, mark: null, cures: '' }, hasSegments);
}

/** The instant that says most of a recording: its first failed request, or its peak. Two recordings are compared at their peaks. */
function telling(recordings: readonly Recording[], device: number): { at: number; at2: number } {
    const [{ ooms }] = recordings.map((each) => each.device(device));
    const most = peaks(recordings, device, 'allocated');
    if (recordings.length > 1) return most;
    const [{ entries }] = recordings.map((each) => each.device(device));
    return entries <= 1 ? { ...most, at: entries } : { ...most, at: ooms[0]?.instant ?? most.at };
}

/** The instants at which recordings hold most. */
function peaks(recordings: readonly Recording[], device: number, metric: Metric): { at: number; at2: number } {
    const [at, at2 = 0] = recordings.map((each) => each.device(device).peak[metric].instant);
    return { at, at2 };
}

/** What stays when a second file comes beside the first; both are shown at their peaks. */
export function kept({ device, axis, metric, by, tab, query }: State, recordings: readonly Recording[]): Partial<State> {
    return { device, axis, metric, by, tab, query, ...peaks(recordings, device, metric) };
}

/** What a page shows first. */
export interface Opening {
    /** What a link says; nothing where there is none. */
    link: string;
    /** Whether the address stands for what is seen: it does not for a file that the page does not carry. */
    isLinked: boolean;
    /** What is shown where there is no link. */
    shown: string;
}
