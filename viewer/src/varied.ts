/** What recordings of one program differ in, such as the batch size. */

export interface Varied {
    name: string;
    values: number[];
}

/** Parses `batch=4,8`; `null` for anything else, or if not each of `count` recordings has a value. */
export function typedVary(text: string, count: number): Varied | null {
    const [, name, list] = /^\s*([^=]+?)\s*=\s*([\d\s,]+)$/.exec(text) ?? [];
    if (name === undefined) return null;
    const values = list.split(',').map((each) => Number(each.trim() || Number.NaN));
    const isGood = values.length === count && values.every((value) => Number.isInteger(value) && value > 0);
    return isGood ? { name, values } : null;
}

/** The number in which otherwise equal names differ, and the word before it. */
export function varyOf(names: readonly string[]): Varied | null {
    const all = names.map((name) => name.match(/\d+|\D+/g) ?? []);
    const [first] = all;
    if (all.some((parts) => parts.length !== first.length)) return null;
    const differ = first.map((_, at) => at).filter((at) => all.some((parts) => parts[at] !== first[at]));
    const [at] = differ;
    if (differ.length !== 1 || !all.every((parts) => /^\d{1,9}$/.test(parts[at]) && Number(parts[at]) > 0)) return null;
    const word = /(\p{L}+)\P{L}*$/u.exec(first[at - 1] ?? '')?.[1];
    return { name: word ?? 'size', values: all.map((parts) => Number(parts[at])) };
}
