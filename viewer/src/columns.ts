/** The columns of the table: for an instant, for two of them, or for the range between them. */

import type { Flow, Metric } from '../engine/engine.d.ts';
import { bytes, growth, share, whole } from './format.ts';
import type { Content, Line } from './rows.ts';

export interface Column {
    head: string;
    /** The value that rows are sorted by. */
    of: (line: Line) => number;
    text: (line: Line) => string;
    total: string;
    counts: 'bytes' | 'share' | 'blocks';
    /** Whether rows can be sorted by it: another column may give the same order. */
    sorts: boolean;
    /** Whether a narrow window omits it. */
    isExtra: boolean;
}

function column(head: string, of: (line: Line) => number, total: number, text = bytes): Column {
    const counts = 'bytes';
    return { head, of, text: (line) => text(of(line)), total: text(total), counts, sorts: true, isExtra: false };
}

/** The columns between the label and the bar. */
export function columns(content: Content, metric: Metric): Column[] {
    const { before, total, flow, heads, inclusive } = content;
    const change = (line: Line) => line.bytes - (line.before ?? 0);
    const was = (total: number) => column(heads[0], (line) => line.before ?? 0, total);
    const is = column(before === null ? metric : heads[1], (line) => line.bytes, total);
    if (before === null) {
        const shares = (line: Line) => share(line.bytes, total);
        const blocks = (line: Line) => line.blocks ?? 0;
        const all = inclusive ? '' : whole(content.lines.reduce((sum, line) => sum + blocks(line), 0));
        const counted = metric === 'reserved' ? 'segments' : 'blocks';
        return [
            is,
            { ...is, head: 'share', text: shares, total: '', counts: 'share', sorts: false },
            { ...column(counted, blocks, 0, whole), total: all, counts: 'blocks' },
        ];
    }
    const grown = column('change', change, total - before, growth);
    if (flow === null) return [was(before), is, grown];
    const part = (head: string, key: keyof Flow) => column(head, (line) => line.flow?.[key] ?? 0, flow[key]);
    // From left to right: the state before plus what was allocated equals what was freed plus the state after.
    return [
        { ...was(before), isExtra: true },
        part('allocated', 'allocated_bytes'),
        part('freed', 'freed_bytes'),
        { ...is, isExtra: true },
        { ...grown, isExtra: true },
        part('survived', 'survived_bytes'),
    ];
}
