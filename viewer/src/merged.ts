/** Two flame graphs as one: the bytes of each frame before and after. */

import type { FlameNode } from '../engine/engine.d.ts';
import { ACCENT, ALARM, type Color, mix, OTHER } from './colors.ts';

/** A frame of both. Its `bytes` are its width: the sum of the larger side of each stack through it. */
export interface MergedNode extends FlameNode {
    before: Held;
    after: Held;
}

interface Held {
    bytes: number;
    own_bytes: number;
    blocks: number;
}

interface Branch {
    label: string;
    sides: [before: Held, after: Held];
    width: number;
    callees: Map<string, Branch>;
}

function branch(label: string): Branch {
    const held = (): Held => ({ bytes: 0, own_bytes: 0, blocks: 0 });
    return { label, sides: [held(), held()], width: 0, callees: new Map() };
}

/** What frames of two recordings have in common if the program was edited in between: their function, on any line. */
export function byFunction(label: string): string {
    return label.replace(/^(.*?):\d+ /, '$1 ');
}

/** Adds a tree, whose nodes come before their callees; new branches are added to `all`. */
function enter(all: Branch[], nodes: readonly FlameNode[], side: 0 | 1, key: (label: string) => string): void {
    const path: Branch[] = [];
    for (const { label, depth, bytes, own_bytes, blocks } of nodes) {
        let at = depth === 0 ? all[0] : path[depth - 1].callees.get(key(label));
        if (!at) {
            at = branch(label);
            path[depth - 1].callees.set(key(label), at);
            all.push(at);
        }
        // Several lines of a function have no common line.
        if (at.label !== label) at.label = key(label);
        path[depth] = at;
        const held = at.sides[side];
        held.bytes += bytes;
        held.own_bytes += own_bytes;
        held.blocks += blocks;
    }
}

/**
 * Frames of two trees, each before its callees, the widest first. Frames are equal if the keys of their labels and of
 * all their callers are. A frame that grew in one callee and shrank in another is wide enough for both, so that each
 * callee has room below its caller.
 */
export function merged(
    before: readonly FlameNode[],
    after: readonly FlameNode[],
    key = (label: string): string => label,
): MergedNode[] {
    if (before.length === 0 && after.length === 0) return [];
    const all = [branch((after[0] ?? before[0]).label)];
    enter(all, before, 0, key);
    enter(all, after, 1, key);
    // Callees come after their callers: from the end on, their widths are known.
    for (const each of [...all].reverse()) {
        each.width = Math.max(each.sides[0].own_bytes, each.sides[1].own_bytes);
        for (const callee of each.callees.values()) each.width += callee.width;
    }
    const nodes: MergedNode[] = [];
    const left: { at: Branch; depth: number; start: number }[] = [{ at: all[0], depth: 0, start: 0 }];
    for (let next = left.pop(); next; next = left.pop()) {
        const { at, depth, start } = next;
        const [was, is] = at.sides;
        nodes.push({
            label: at.label,
            ...shade(is.bytes - was.bytes, at.width),
            bytes: at.width,
            own_bytes: Math.max(was.own_bytes, is.own_bytes),
            blocks: Math.max(was.blocks, is.blocks),
            depth,
            start,
            before: was,
            after: is,
        });
        const callees = [...at.callees.values()].sort((a, b) => b.width - a.width || (a.label < b.label ? -1 : 1));
        let place = start;
        const placed = callees.map((callee) => {
            const from = place;
            place += callee.width;
            return { at: callee, depth: depth + 1, start: from };
        });
        left.push(...placed.reverse());
    }
    return nodes;
}

/** Red for growth, blue for shrinkage, stronger for a larger part of its width; gray if nothing changed. */
function shade(change: number, width: number): Color {
    const sign = change > 0 ? ALARM : ACCENT;
    const part = change === 0 || width === 0 ? 0 : 0.25 + (0.75 * Math.abs(change)) / width;
    return { light: mix(sign.light, OTHER.light, part), dark: mix(sign.dark, OTHER.dark, part) };
}
