/** Memory by group, in rows: at an instant, at two of them, or in two recordings. */

import type { By, Difference, Flow, Partner } from '../engine/engine.d.ts';
import { type Color, OTHER } from './colors.ts';
import { entry } from './format.ts';
import { type Lane, letters } from './lane.ts';
import { OTHERS } from './stacked.ts';

/** The most rows: nobody reads more. */
const MOST = 300;

/** The figures of a range. */
const FLOW = [
    'from_bytes',
    'allocated_bytes',
    'freed_bytes',
    'survived_bytes',
    'to_bytes',
    'bytes',
    'from_blocks',
    'allocated_blocks',
    'freed_blocks',
    'survived_blocks',
    'to_blocks',
] as const satisfies readonly (keyof Flow)[];

/** A row, of any comparison. */
export interface Line {
    label: string;
    /** The category of most of its memory, in words, if it is known. */
    purpose: string | null;
    /** Its label in the first recording, and how that differs, as text. */
    base: string | null;
    was: string;
    color: Color;
    inferred: boolean;
    /** The stack with the most bytes, of the second recording or of the first. */
    stack: readonly string[];
    second: boolean;
    blocks: number | null;
    /** The bytes before, if two states are compared. */
    before: number | null;
    bytes: number;
    /** The flow in a range, if the rows are of a range. */
    flow: Flow | null;
}

export interface Content {
    /** All rows, the largest first. Labels may repeat: those of stacks are short. */
    lines: Line[];
    before: number | null;
    total: number;
    /** The flow of all lines. */
    flow: Flow | null;
    /** Rows overlap, so they have no sum. */
    inclusive: boolean;
    /** The headers of `before` and `bytes`. */
    heads: [string, string];
    /** Notes about the groups. */
    notes: readonly string[];
}

/** Requests the rows for the current state. */
export async function ask(lanes: readonly Lane[], by: By): Promise<Content> {
    const [first, second] = lanes;
    if (second) {
        const [was, is] = await Promise.all([difference(first, by), difference(second, by)]);
        const [before, after] = [standing(was, false), standing(is, true)];
        const names = (lines: readonly Line[]) => JSON.stringify(lines.map(({ label, stack }) => ({ label, stack })));
        const partners = await second.recording.client.ask('matched', [by, names(before), names(after)]);
        return {
            lines: paired(before, after, partners),
            before: was.to_bytes,
            total: is.to_bytes,
            flow: null,
            inclusive: was.inclusive,
            heads: letters(lanes) as [string, string],
            notes: [...new Set([...was.notes, ...is.notes])],
        };
    }
    const { metric } = first.store.state;
    if (first.range === null) {
        const heads: [string, string] = ['', `${metric} at ${entry(first.at)}`];
        const is = await difference(first, by);
        const { to_bytes: total, inclusive, notes } = is;
        return { lines: standing(is, false), before: null, total, flow: null, inclusive, heads, notes };
    }
    const [from, to] = first.range;
    const answer = await difference(first, by, from, to);
    const line = (row: Difference['rows'][number]): Line => {
        const { from_bytes: before, to_bytes: bytes } = row;
        return { ...row, base: null, was: '', color: row, second: false, blocks: null, before, bytes, flow: row };
    };
    return {
        lines: answer.rows.map(line),
        before: answer.from_bytes,
        total: answer.to_bytes,
        flow: answer,
        inclusive: answer.inclusive,
        heads: [`at ${entry(from)}`, `at ${entry(to)}`],
        notes: answer.notes,
    };
}

/** All rows, with their colors: between two instants, or at the cursor. */
function difference(lane: Lane, by: By, from = lane.at, to = lane.at): Promise<Difference> {
    const { metric } = lane.store.state;
    return lane.recording.client.ask('difference', [lane.device.device, metric, by, from, to, 0]);
}

/** The state at an instant, given the difference from that same instant. */
function standing({ rows }: Difference, second: boolean): Line[] {
    const lines = rows.map((row): Line => {
        return { ...row, base: null, was: '', color: row, second, blocks: row.to_blocks, before: null, bytes: row.to_bytes, flow: null };
    });
    return lines.sort((a, b) => b.bytes - a.bytes);
}

/** The rows of two recordings, the largest change first; `partners` are those of the rows after. */
export function paired(before: readonly Line[], after: readonly Line[], partners: readonly Partner[]): Line[] {
    const lines = after.map((line, place): Line & { before: number } => {
        const { base, was } = partners[place];
        const known = base === null ? null : before[base];
        const inferred = line.inferred || (known?.inferred ?? false);
        return { ...line, inferred, was, base: known?.label ?? null, blocks: null, before: known?.bytes ?? 0 };
    });
    const known = new Set(partners.map(({ base }) => base));
    const gone = before.filter((_, place) => !known.has(place));
    lines.push(...gone.map((line) => ({ ...line, blocks: null, before: line.bytes, bytes: 0 })));
    const change = (line: Line & { before: number }) => Math.abs(line.bytes - line.before);
    return lines.sort((a, b) => change(b) - change(a) || b.bytes - a.bytes);
}

/** The shown rows, in the given order: the rest is one row, unless rows overlap and so have no sum. */
export function shown({ lines, inclusive }: Pick<Content, 'lines' | 'inclusive'>): Line[] {
    const [most, rest] = [lines.slice(0, MOST), lines.slice(MOST)];
    return rest.length === 0 || inclusive ? most : [...most, together(rest, OTHERS, OTHER)];
}

/** The line with a label; `null` if there is none. */
export function found({ lines }: Content, label: string): Line | null {
    const same = lines.filter((line) => line.label === label || line.base === label);
    return same.length > 1 ? together(same, label, same[0].color, same[0]) : (same[0] ?? null);
}

/** The sum of the figures of several ranges. */
function sumOf(flows: readonly Flow[]): Flow {
    const sum = { ...flows[0] };
    for (const key of FLOW) sum[key] = flows.reduce((total, flow) => total + flow[key], 0);
    return sum;
}

/** Several rows as one; with the stack of one of them, if that one represents all. */
function together(lines: readonly Line[], label: string, color: Color, likeAll?: Line): Line {
    const flows = lines.map((line) => line.flow);
    const sum = (of: (line: Line) => number | null) =>
        lines.some((line) => of(line) === null) ? null : lines.reduce((total, line) => total + of(line)!, 0);
    return {
        label,
        purpose: null,
        base: null,
        was: '',
        color,
        inferred: lines.some((line) => line.inferred),
        stack: likeAll?.stack ?? [],
        second: likeAll?.second ?? false,
        blocks: sum((line) => line.blocks),
        before: sum((line) => line.before),
        bytes: sum((line) => line.bytes) ?? 0,
        flow: flows.every((flow) => flow !== null) ? sumOf(flows) : null,
    };
}
