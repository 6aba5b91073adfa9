/** Searching in labels and stacks that are there; allocations are searched by the engine, with the same pattern. */

/** Tells whether a label or one of its frames matches; `null` where nothing is searched for or the pattern is none here. */
export function finder(query: string): ((label: string, stack: readonly string[]) => boolean) | null {
    if (query === '') return null;
    try {
        const pattern = new RegExp(query);
        return (label, stack) => pattern.test(label) || stack.some((frame) => pattern.test(frame));
    } catch {
        return null;
    }
}
