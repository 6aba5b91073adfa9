/** Ascending lists of numbers. */

/** The place of the last number of an ascending list that is at most `value`; -1 if there is none. */
export function lastUpTo(list: Uint32Array, value: number): number {
    let [low, high] = [0, list.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        if (list[middle] <= value) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}
