/** Commands for the command line that show the same as the page. */

/** An argument in shell syntax. */
function quoted(text: string): string {
    return /^[\w./+:,=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The name of a file in shell syntax, or a placeholder. */
export function typed(file: string, otherwise = 'FILE'): string {
    return /^[\w./+-]+$/.test(file) ? file : otherwise;
}

/** A command with its options, without those that have no value. */
export function command(words: readonly string[], options: readonly (readonly [name: string, value: string | null])[]): string {
    const given = options.flatMap(([name, value]) => (value === null ? [] : [name, quoted(value)]));
    return ['memviz', ...words, ...given].join(' ');
}

/** Bytes as `--capacity` takes them. */
export function capacity(bytes: number): string | null {
    return bytes === 0 ? null : `${Math.round(bytes / 2 ** 20)}MiB`;
}
