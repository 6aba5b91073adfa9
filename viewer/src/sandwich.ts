/** A function with its callers and callees, wherever it is called. */

import type { FlameNode } from '../engine/engine.d.ts';
import { byFunction } from './merged.ts';

/** A frame of the tree of callers or callees. */
interface Branch {
    label: string;
    bytes: number;
    own_bytes: number;
    blocks: number;
    /** The frame with the most bytes in it, which determines its color. */
    most: FlameNode;
    next: Map<string, Branch>;
}

function enter(into: Map<string, Branch>, node: FlameNode, held: FlameNode): Branch {
    const label = byFunction(node.label);
    const known = into.get(label);
    const at = known ?? { label, bytes: 0, own_bytes: 0, blocks: 0, most: node, next: new Map<string, Branch>() };
    if (!known) into.set(label, at);
    at.bytes += held.bytes;
    at.blocks += held.blocks;
    if (node.bytes > at.most.bytes) at.most = node;
    return at;
}

/** The frames next to a frame on one side, in rows that lead away from it; `row` gives the position of each. */
function laid(first: Branch, row: (distance: number) => number): FlameNode[] {
    const nodes: FlameNode[] = [];
    const left: { at: Branch; distance: number; start: number }[] = [{ at: first, distance: 0, start: 0 }];
    for (let next = left.pop(); next; next = left.pop()) {
        const { at, distance, start } = next;
        const { label, bytes, own_bytes, blocks, most } = at;
        nodes.push({ label, light: most.light, dark: most.dark, bytes, own_bytes, blocks, depth: row(distance), start });
        const beside = [...at.next.values()].sort((a, b) => b.bytes - a.bytes || (a.label < b.label ? -1 : 1));
        let place = start;
        const placed = beside.map((each) => {
            const from = place;
            place += each.bytes;
            return { at: each, distance: distance + 1, start: from };
        });
        left.push(...placed.reverse());
    }
    return nodes;
}

function height(branch: Branch): number {
    let most = 0;
    const left = [{ at: branch, distance: 0 }];
    for (let next = left.pop(); next; next = left.pop()) {
        const { at, distance } = next;
        most = Math.max(most, distance);
        for (const each of at.next.values()) left.push({ at: each, distance: distance + 1 });
    }
    return most;
}

/**
 * A function of a flame graph first, then its callees below it and its callers above it. Frames are functions on any
 * line. If it calls itself, only its outermost frame counts, so that no byte counts twice. Empty if it is not called.
 */
export function sandwich(nodes: readonly FlameNode[], wanted: string): FlameNode[] {
    const [callers, callees] = [new Map<string, Branch>(), new Map<string, Branch>()];
    const path: FlameNode[] = [];
    /** Below an outermost frame of the function: the branches down to here, and its depth. */
    let within: { depth: number; branches: Branch[] } | null = null;
    for (const node of nodes) {
        const { depth } = node;
        path[depth] = node;
        if (within && depth <= within.depth) within = null;
        if (!within && depth > 0 && byFunction(node.label) === wanted) {
            within = { depth, branches: [] };
            // The root is not a caller.
            let into = callers;
            for (let above = depth; above > 0; above--) into = enter(into, path[above], node).next;
        }
        if (!within) continue;
        const distance = depth - within.depth;
        const into = distance === 0 ? callees : within.branches[distance - 1].next;
        const at = enter(into, node, node);
        at.own_bytes += node.own_bytes;
        within.branches[distance] = at;
    }
    const [above, below] = [callers.get(wanted), callees.get(wanted)];
    if (!above || !below) return [];
    const row = height(above);
    return [...laid(below, (distance) => row + distance), ...laid(above, (distance) => row - distance).slice(1)];
}
