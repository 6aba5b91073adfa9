/** Searches visible texts. The engine does the search, so that a pattern means the same as for allocations. */

import type { Lane } from './lane.ts';

/** The texts that match the search; `null` without a search, or if the pattern is invalid: the box says why. */
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
