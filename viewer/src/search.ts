/** Searching in texts that are seen. The engine does, so that a pattern means the same there and for allocations. */

import type { Lane } from './lane.ts';

/** Those of some texts that match what is searched for; `null` where nothing is, or the pattern is none: the box says why. */
export async function matching(lane: Lane, texts: Iterable<string>): Promise<ReadonlySet<string> | null> {
    const { query } = lane.store.state;
    if (query === '') return null;
    const distinct = [...new Set(texts)];
    try {
        const matches = await lane.recording.client.ask('matches', [query, distinct]);
        return new Set(distinct.filter((_, at) => matches[at] === 1));
    } catch {
        return null;
    }
}
