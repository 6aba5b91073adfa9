/** Where two recordings diverge: the first request that differs. */

import { name } from './format.ts';
import type { Lane } from './lane.ts';

export interface Diverging {
    /** The instant right after the request in each recording; null if one of them ends before it. */
    instants: [first: number | null, second: number | null];
    /** The text of `memviz diff` about it, with the letters of the recordings. */
    text: string;
}

/** Requests it; `null` if all requests are equal, or if it is unknown which belong together. */
export async function diverging([first, second]: readonly Lane[]): Promise<Diverging | null> {
    const asked = await first.recording.client.ask('requests', [first.device.device]);
    const { whole: isWhole, step, entries, bytes: sizes, failed } = asked;
    const { client } = second.recording;
    const args = [second.device.device, isWhole, step ?? undefined, entries, sizes, failed] as const;
    const found = await client.ask('apart', [...args]);
    if (!found) return null;
    const said = ({ device, letter, recording }: Lane, number: number | null) =>
        recording.client.ask('request', [device.device, letter, number ?? undefined]);
    const [a, b] = await Promise.all([said(first, found.base), said(second, found.new)]);
    const instant = (number: number | null) => (number === null ? null : number + 1);
    return { instants: [instant(found.base), instant(found.new)], text: name(`${found.alike} ${a}, ${b}`, 600) };
}
