import assert from 'node:assert/strict';
import test from 'node:test';
import type { FlameNode } from '../../engine/engine.d.ts';
import { byFunction, merged } from '../../src/merged.ts';

/** The frames of a tree: depth, label, own bytes. */
function tree(...frames: readonly (readonly [number, string, number])[]): FlameNode[] {
    return frames.map(([depth, label, own_bytes], at) => {
        const end = frames.findIndex((each, later) => later > at && each[0] <= depth);
        const below = frames.slice(at, end < 0 ? frames.length : end);
        const bytes = below.reduce((sum, each) => sum + each[2], 0);
        return { label, light: '', dark: '', bytes, own_bytes, blocks: below.length, depth, start: 0 };
    });
}

test('a difference has the bytes of both in each frame, and room for all callees', () => {
    const before = tree([0, 'all', 0], [1, 'main', 1], [2, 'a', 10], [2, 'b', 4], [1, 'old', 3]);
    const after = tree([0, 'all', 0], [1, 'main', 1], [2, 'b', 14], [2, 'c', 2]);
    const nodes = merged(before, after);
    const seen = nodes.map(({ label, depth, start, bytes, before, after }) => {
        return [label, depth, start, bytes, before.bytes, after.bytes];
    });
    assert.deepEqual(seen, [
        ['all', 0, 0, 30, 18, 17],
        ['main', 1, 0, 27, 15, 17],
        ['b', 2, 0, 14, 4, 14],
        ['a', 2, 14, 10, 10, 0],
        ['c', 2, 24, 2, 0, 2],
        ['old', 1, 27, 3, 3, 0],
    ]);
    // Own bytes of frames sum to the totals of both.
    const own = (side: 'before' | 'after') => nodes.reduce((sum, node) => sum + node[side].own_bytes, 0);
    assert.deepEqual([own('before'), own('after')], [18, 17]);
});

test('growth is red, shrinking is blue, and no change is gray', () => {
    const before = tree([0, 'all', 0], [1, 'same', 5], [1, 'less', 8], [1, 'more', 1]);
    const after = tree([0, 'all', 0], [1, 'same', 5], [1, 'less', 1], [1, 'more', 8]);
    const nodes = merged(before, after);
    const shade = (label: string) => {
        const hex = nodes.find((node) => node.label === label)!.light;
        const [red, , blue] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
        return Math.abs(red - blue) < 25 ? 'gray' : red > blue ? 'red' : 'blue';
    };
    assert.deepEqual(['all', 'same', 'less', 'more'].map(shade), ['gray', 'gray', 'blue', 'red']);
});

test('lines that moved between two recordings are still the same functions', () => {
    const before = tree([0, 'all', 0], [1, 'a.py:10 main', 0], [2, 'm.py:5 f', 3], [2, 'm.py:6 f', 4]);
    const after = tree([0, 'all', 0], [1, 'a.py:12 main', 0], [2, 'm.py:5 f', 9], [2, 'std::f<a:1 b>', 1]);
    const seen = merged(before, after, byFunction).map(({ label, before, after }) => [label, before.bytes, after.bytes]);
    assert.deepEqual(seen, [
        ['all', 7, 10],
        ['a.py main', 7, 10],
        ['m.py f', 7, 9],
        ['std::f<a:1 b>', 0, 1],
    ]);
    assert.equal(merged(before, after).length, 7);
});

test('a difference to an empty tree is the whole other tree, and of two empty trees it is empty', () => {
    const only = tree([0, 'all', 0], [1, 'main', 7]);
    assert.deepEqual(merged([], only).map((node) => [node.before.bytes, node.after.bytes]), [[0, 7], [0, 7]]);
    assert.deepEqual(merged([], []), []);
});
