/** The lines of code of frames, if the reader has provided the program's folder. They are read here and sent nowhere. */

import type { Frame } from '../engine/engine.d.ts';
import { element } from './dom.ts';
import type { Taken } from './files.ts';
import { cut, safe } from './format.ts';

/** Larger files are not source code. */
const LARGEST = 4 << 20;

/** All files by their name. */
const known = new Map<string, Taken[]>();
const texts = new WeakMap<File, Promise<string[]>>();

/** Takes the sources among some files; returns how many there are. */
export function addSources(files: readonly Taken[]): void {
    for (const each of files) {
        const last = each.path.split('/').at(-1) ?? '';
        const others = (known.get(last) ?? []).filter(({ path }) => path !== each.path);
        known.set(last, [...others, each]);
    }
}

export function hasSources(): boolean {
    return known.size > 0;
}

/** Number of equal names at the ends of two paths. */
function alike(one: string, other: string): number {
    const [a, b] = [one.split('/').reverse(), other.split('/').reverse()];
    const differs = a.findIndex((part, at) => part !== b[at]);
    return differs < 0 ? a.length : differs;
}

/** The file for a path of a recording: the one whose ending matches best, if there is only one. */
function fileOf(path: string): File | null {
    const all = known.get(path.split('/').at(-1) ?? '') ?? [];
    const scores = all.map((each) => alike(each.path, path));
    const most = Math.max(0, ...scores);
    const best = all.filter((_, at) => scores[at] === most);
    return best.length === 1 ? best[0].file : null;
}

/** The line of a frame; `null` if there is none, or if several files are possible. */
export async function lineOf({ path }: Frame): Promise<string | null> {
    const [, file, number] = /^(.*):(\d+)$/s.exec(path.replaceAll('\\', '/')) ?? [];
    const found = file === undefined ? null : fileOf(file);
    if (!found || found.size > LARGEST) return null;
    let lines = texts.get(found);
    if (!lines) {
        lines = found.text().then((text) => text.split('\n'));
        texts.set(found, lines);
    }
    const line = (await lines)[Number(number) - 1]?.trim();
    return line ? cut(safe(cut(line, 800)), 200) : null;
}

/** Adds the line of a frame below it, once it is read. */
export function withLine(host: HTMLElement, frame: Frame): void {
    if (!hasSources()) return;
    // A file that can no longer be read has no lines.
    void lineOf(frame).then(
        (line) => {
            if (line !== null) host.append(element('code', { class: 'source' }, line));
        },
        () => {},
    );
}
