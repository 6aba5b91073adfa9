/** Where two recordings diverge: the first request that differs. */

import type { Event } from '../engine/engine.d.ts';
import { bytes, entry, name, whole } from './format.ts';
import type { Lane } from './lane.ts';

export interface Diverging {
    /** The instant right after the request, in each recording; null where one ends before. */
    instants: [first: number | null, second: number | null];
    text: string;
}

/** Asks for it; `null` where all requests are alike, or nothing tells which belong together. */
export async function diverging([first, second]: readonly Lane[]): Promise<Diverging | null> {
    const asked = await first.recording.client.ask('requests', [first.device.device]);
    const { whole: isWhole, step, entries, bytes: sizes, failed } = asked;
    const { client } = second.recording;
    const args = [second.device.device, isWhole, step ?? undefined, entries, sizes, failed] as const;
    const found = await client.ask('apart', [...args]);
    if (!found) return null;
    const sides = await Promise.all([request(first, found.base), request(second, found.new)]);
    const [a, b] = sides.map((each, at) => said([first, second][at], each));
    const common = `${whole(found.alike)} ${found.alike === 1 ? 'request' : 'requests'} in common`;
    const instant = (number: number | null) => (number === null ? null : number + 1);
    return { instants: [instant(found.base), instant(found.new)], text: `after ${common}: ${a}, ${b}` };
}

async function request(lane: Lane, number: number | null): Promise<Event | null> {
    if (number === null) return null;
    const [event] = await lane.recording.client.ask('events', [lane.device.device, Uint32Array.of(number)]);
    return event ?? null;
}

function said(lane: Lane, event: Event | null): string {
    if (!event) return `${lane.letter} ends`;
    const asks = event.action === 'oom' ? 'fails to allocate' : 'requests';
    return `${lane.letter} ${asks} ${bytes(event.bytes)} at ${name(event.site)} (${entry(event.entry + 1)})`;
}
