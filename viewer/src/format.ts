/** Numbers and names for people, in the words of the command line. */

const UNITS = ['KiB', 'MiB', 'GiB'] as const;

/** Bytes as PyTorch writes them: `512 bytes`, `20.00 KiB`, `4.15 GiB`. */
export function bytes(count: number): string {
    if (count < 0) return `-${bytes(-count)}`;
    if (count < 1024) return `${count} bytes`;
    const power = count < 1024 ** 2 ? 1 : count < 1024 ** 3 ? 2 : 3;
    return `${(count / 1024 ** power).toFixed(2)} ${UNITS[power - 1]}`;
}

/** Bytes with a sign: growth. */
export function growth(count: number): string {
    return count > 0 ? `+${bytes(count)}` : bytes(count);
}

/** Bytes as typed: `4096`, `1.5 MiB`, `20M`; `null` for anything else. */
export function typedBytes(text: string): number | null {
    const found = /^\s*([\d.]+)\s*([kmg]?)i?b?\s*$/i.exec(text);
    const count = Number(found?.[1]);
    if (!found || !Number.isFinite(count)) return text.trim() === '' ? 0 : null;
    return Math.round(count * 1024 ** ' kmg'.indexOf(found[2].toLowerCase() || ' '));
}

/** Created once: that takes longer than formatting all labels of a frame. */
const WHOLE = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** A whole number with separators: `4,453,794,816`. */
export function whole(count: number): string {
    return WHOLE.format(count);
}

/** A number of things: `1 block`, `2 blocks`. */
export function counted(count: number, one: string, several = `${one}s`): string {
    return `${whole(count)} ${count === 1 ? one : several}`;
}

/** An instant by the entry that has just happened, as the command line names it. */
export function entry(instant: number): string {
    return instant === 0 ? 'the start' : `entry ${whole(instant - 1)}`;
}

/** The same, with the number of entries. */
export function entryOf(instant: number, entries: number): string {
    if (entries === 0) return 'the dump';
    return instant === 0 ? 'the start' : `${entry(instant)} of ${whole(entries)}`;
}

/** The sign before a figure that is only a bound. */
export function bound(kind: string | null): string {
    if (kind === null) return '';
    return kind === 'lower' ? 'at least ' : kind === 'upper' ? 'at most ' : 'perhaps ';
}

/** A share of a total: `23.5%`; empty if the total is 0. */
export function share(part: number, total: number): string {
    return total > 0 ? `${((100 * part) / total).toFixed(1)}%` : '';
}

/** A duration: `812 us`, `3.4 ms`, `12.53 s`, `2 h 05 min`. */
export function duration(micros: number): string {
    const two = (value: number) => String(Math.floor(value)).padStart(2, '0');
    if (micros < 1e3) return `${Math.round(micros)} us`;
    if (micros < 1e6) return `${(micros / 1e3).toFixed(1)} ms`;
    if (micros < 6e7) return `${(micros / 1e6).toFixed(2)} s`;
    if (micros < 3.6e9) return `${Math.floor(micros / 6e7)} min ${two((micros / 1e6) % 60)} s`;
    return `${Math.floor(micros / 3.6e9)} h ${two((micros / 6e7) % 60)} min`;
}

/** Characters that are invisible, that change the order of others, or that are not characters. */
const HIDDEN =
    /[\p{Cc}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{2800}\u{3164}\u{fe00}-\u{fe0f}\u{feff}\u{ffa0}\u{fff0}-\u{fffb}\u{fffe}\u{ffff}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}\p{Cs}]/gu;

/** Text from a file, safe to show: characters that are hidden or reorder text are written as `\u{202e}`. */
export function safe(text: string): string {
    return text.replace(HIDDEN, (hidden) => `\\u{${hidden.codePointAt(0)!.toString(16)}}`);
}

/** At most `limit` characters: a longer text loses its middle, since both ends of a name matter. */
export function cut(text: string, limit: number): string {
    if (text.length <= limit) return text;
    const tail = Math.floor((limit - 1) / 2);
    return `${text.slice(0, limit - 1 - tail)}…${text.slice(text.length - tail)}`;
}

/** A name from a file, as shown. Cut first, and not read to its end: names may be of any length. */
export function name(text: string, limit = 120): string {
    return cut(safe(cut(text, 4 * limit)), limit);
}

/** What holds an allocation, the most telling first. */
export function holders([first, ...others]: readonly string[]): string {
    return name(first, 300) + (others.length > 0 ? ` (and ${counted(others.length, 'other')})` : '');
}
