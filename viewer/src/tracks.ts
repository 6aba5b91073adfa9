/** Everything over time, as tracks: counters, samples, phases, steps and annotations of each recording and device. */

import type { DeviceFigures, Metric, Sample } from '../engine/engine.d.ts';
import { bound, bytes, duration } from './format.ts';
import { annotationRows, type Span, stepRow, times } from './ribbons.ts';
import type { Recording } from './recording.ts';

/** Heights of tracks, in pixels. */
export const HEAD = 20;
const COUNTER = 38;
const SPANS = 18;

/** Counters that have a track, in their order. */
const COUNTERS: readonly Metric[] = ['allocated', 'reserved', 'requested'];

/** A recording and one of its devices. */
export interface Member {
    recording: Recording;
    device: DeviceFigures;
    /** Its place among all recordings, and the name of its tracks: `0.1`. */
    at: number;
    key: string;
}

export type Track = Member & { id: string; label: string; height: number } & (
        | { kind: 'head' }
        | { kind: 'counter'; metric: Metric }
        | { kind: 'spans'; spans: readonly Span[] }
        | { kind: 'samples'; samples: readonly Sample[] }
    );

/** All devices of some recordings. */
export function members(recordings: readonly Recording[]): Member[] {
    return recordings.flatMap((recording, at) =>
        recording.figures.devices.map((device) => ({ recording, device, at, key: `${at}.${device.device}` })),
    );
}

/**
 * Microseconds from the start of the first recording to the starts of the others, by the clocks of their machines. Empty unless
 * all of them have a clock and were recorded at the same time.
 */
export function lagsOf<R extends Pick<Recording, 'clock'>>(recordings: readonly R[]): Map<R, number> {
    const clocks = recordings.map(({ clock }) => clock).filter((clock) => clock !== null);
    const isTogether = Math.max(...clocks.map(([first]) => first)) <= Math.min(...clocks.map(([, last]) => last));
    if (clocks.length < recordings.length || !isTogether) return new Map();
    return new Map(recordings.map((recording, at) => [recording, clocks[at][0] - clocks[0][0]]));
}

/** The tracks of a device, its header first. */
export async function tracksOf(member: Member, isAlone: boolean, lag: number | undefined): Promise<Track[]> {
    const { recording, device, key } = member;
    await recording.prepare(device.device);
    const [phases, samples] = await Promise.all([recording.phases(device.device), recording.samples(device.device)]);
    const tracks: Track[] = [{ ...member, kind: 'head', id: key, label: title(member, isAlone, lag), height: HEAD }];
    for (const metric of COUNTERS) {
        if (metric === 'reserved' && !device.has_reserved) continue;
        tracks.push({ ...member, kind: 'counter', id: `${key}.${metric}`, label: metric, height: COUNTER, metric });
    }
    if (samples.length > 0)
        tracks.push({ ...member, kind: 'samples', id: `${key}.device`, label: 'device', height: COUNTER, samples });
    const add = (label: string, id: string, spans: readonly Span[]) => {
        if (spans.length > 0) tracks.push({ ...member, kind: 'spans', id: `${key}.${id}`, label, height: SPANS, spans });
    };
    const spans = phases.map(({ phase, from, to, recorded, light, dark }) => ({
        name: recorded ? phase : `${phase} *`,
        color: { light, dark },
        from,
        to,
        ...times(recording, device, from, to),
    }));
    if (phases.some(({ phase }) => phase !== 'other')) add('phases', 'phases', spans);
    add('steps', 'steps', stepRow(recording, device));
    annotationRows(recording, device).forEach((row, depth) =>
        add(depth === 0 ? 'annotations' : '', `annotations${depth}`, row),
    );
    return tracks;
}

/** The name of a device, its maximum, and the start of its recording. */
function title({ recording, device }: Member, isAlone: boolean, lag = 0): string {
    const name = isAlone ? device.name : `${recording.name}, ${device.name}`;
    const { allocated, reserved } = device.peak;
    const most = (of: typeof allocated) => bound(of.bound) + bytes(of.bytes);
    const peak = `peak ${most(allocated)} allocated`;
    const failed = device.ooms.length > 0 ? '; out of memory' : '';
    const start = lag === 0 ? '' : `; starts ${duration(Math.abs(lag))} ${lag > 0 ? 'later' : 'earlier'}`;
    return `${name}: ${peak}${device.has_reserved ? `, ${most(reserved)} reserved` : ''}${failed}${start}`;
}
