import assert from 'node:assert/strict';
import test from 'node:test';
import type { FlameNode } from '../../engine/engine.d.ts';
import { sandwich } from '../../src/sandwich.ts';

/** The frames of a tree: depth, label, own bytes; blocks are one byte each. */
function tree(...frames: readonly (readonly [number, string, number])[]): FlameNode[] {
    return frames.map(([depth, label, own_bytes], at) => {
        const end = frames.findIndex((each, later) => later > at && each[0] <= depth);
        const bytes = frames.slice(at, end < 0 ? frames.length : end).reduce((sum, each) => sum + each[2], 0);
        return { label, light: label, dark: label, bytes, own_bytes, blocks: bytes, depth, start: 0 };
    });
}

const TREE = tree(
    [0, 'all', 0],
    [1, 'a.py:1 main', 0],
    [2, 'a.py:5 f', 1],
    [3, 'a.py:9 g', 4],
    [3, 'a.py:6 f', 2],
    [4, 'a.py:9 g', 8],
    [2, 'a.py:7 g', 16],
    [1, 'a.py:3 other', 0],
    [2, 'a.py:5 f', 32],
);

test('a function is between all its callers and all its callees', () => {
    const seen = sandwich(TREE, 'a.py f').map(({ label, bytes, own_bytes, depth, start }) => {
        return [label, bytes, own_bytes, depth, start];
    });
    assert.deepEqual(seen, [
        ['a.py f', 47, 33, 1, 0],
        // A recursive call is one of its callees, and no byte counts twice.
        ['a.py f', 10, 2, 2, 0],
        ['a.py g', 8, 8, 3, 0],
        ['a.py g', 4, 4, 2, 10],
        ['a.py other', 32, 0, 0, 0],
        ['a.py main', 15, 0, 0, 32],
    ]);
});

test('callers of a function at the ends of several stacks are distinguished', () => {
    const seen = sandwich(TREE, 'a.py g').map(({ label, bytes, depth }) => [label, bytes, depth]);
    assert.deepEqual(seen, [
        ['a.py g', 28, 3],
        ['a.py main', 16, 2],
        ['a.py f', 12, 2],
        ['a.py f', 8, 1],
        ['a.py main', 8, 0],
        ['a.py main', 4, 1],
    ]);
    assert.deepEqual(sandwich(TREE, 'a.py h'), []);
    assert.deepEqual(sandwich([], 'a.py h'), []);
});
