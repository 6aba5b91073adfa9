import assert from 'node:assert/strict';
import test from 'node:test';
import type { Bands, Blocks } from '../../engine/engine.d.ts';
import { decode } from '../../src/embedded.ts';
import { clamped } from '../../src/navigate.ts';
import type { Pen } from '../../src/pen.ts';
import { axisTicks, byteTicks } from '../../src/plot.ts';
import { fitting } from '../../src/ribbons.ts';
import { pieces, shapeAt, stackAt } from '../../src/shapes.ts';
import { around, bandAt, column, covers, edges, ordered, touching } from '../../src/stacked.ts';
import { encoded } from '../encoded.ts';

test('the page reads the same bytes that were written into it', () => {
    for (let length = 0; length < 700; length++) {
        const bytes = Uint8Array.from({ length }, (_, at) => (at * 89 + length) & 255);
        const text = encoded(bytes);
        assert.ok(!text.includes('<'));
        assert.deepEqual(decode(text), bytes);
        assert.deepEqual(decode(`\n ${text.replace(/(.{7})/g, '$1\n')} `), bytes);
    }
    assert.deepEqual(decode('s8W-!!!!!v'), Uint8Array.of(255, 255, 255, 255, 0, 0, 0, 27));
});

test('a range stays within the recording', () => {
    assert.deepEqual(clamped(-50, 50, [0, 100]), { from: 0, to: 100 });
    assert.deepEqual(clamped(90, 130, [0, 100]), { from: 60, to: 100 });
    assert.deepEqual(clamped(10, 10.5, [0, 100]), { from: 10, to: 18 });
    assert.deepEqual(clamped(1, 2, [0, 3]), { from: 0, to: 3 });
});

test('ticks are round, in order and within the axis', () => {
    for (const top of [1, 700, 5e3, 3e7, 4.4e9, 8.1e10, 6e12]) {
        const ticks = byteTicks(top, 7);
        assert.ok(
            ticks.length >= 1 && ticks.length <= 16 && ticks.every(({ at }) => at <= top),
            `${top}: ${ticks.length}`,
        );
        assert.equal(new Set(ticks.map(({ text }) => text)).size, ticks.length);
    }
    const [first] = axisTicks('entry', 0, 100, 8);
    assert.equal(first.text, '0');
    for (const [from, to] of [
        [0, 8],
        [690_000, 690_008],
        [0, 1e12],
        [123_456, 123_999],
    ]) {
        const ticks = axisTicks('time', from, to, 9);
        assert.ok(ticks.length > 0 && ticks.length <= 11 && ticks.every(({ at }) => at >= from - 1 && at <= to));
        assert.equal(new Set(ticks.map(({ text }) => text)).size, ticks.length);
    }
});

test('fetched data covers the visible range, in fixed columns', () => {
    const all = [0, 9108] as const;
    const [from, to] = [1000.25, 2000.75];
    const near = around(from, to, 900, all);
    assert.ok(covers(near, from, to, all));
    assert.ok(covers(near, from + 200, to + 200, all));
    assert.ok(!covers(near, from + 800, to + 800, all));
    const step = (to - from) / 900;
    const next = around(from + 37.7, to + 37.7, 900, all);
    const offset = (next.from - near.from) / step;
    assert.ok(Math.abs(offset - Math.round(offset)) < 1e-6);
    const whole = around(0, 9108, 900, all);
    assert.equal(whole.columns, 900);
    assert.equal(column(whole, 9108), -1);
    assert.equal(column(whole, 9107.9), 899);
});

test('the band under the pointer is the one that is drawn there', () => {
    const bands: Bands = {
        groups: [],
        values: Float64Array.of(10, 0, 5, 20),
        totals: Float64Array.of(15, 20),
        instants: Uint32Array.of(0, 1),
    };
    const sums = edges(bands, 2);
    assert.deepEqual([...sums], [10, 0, 15, 20]);
    assert.deepEqual(
        [0, 9, 10, 14, 15, -1].map((bytes) => bandAt(sums, 2, 0, bytes)),
        [0, 0, 1, 1, -1, -1],
    );
    assert.equal(bandAt(sums, 2, 1, 0), 1);
});

test('the shape under the pointer is the one that is drawn there', () => {
    const blocks: Blocks = {
        groups: [],
        made: Uint32Array.of(1, 2),
        allocations: Uint32Array.of(7, 9),
        bytes: Float64Array.of(100, 50),
        group: Uint32Array.of(0, 0),
        starts: Uint32Array.of(0, 1, 3),
        ends: Uint32Array.of(3, 6),
        points: Float64Array.of(0, 0, 1, 100, 3, 0),
        rest: new Float64Array(6),
        totals: Float64Array.of(100, 150, 150, 50, 50, 50),
        instants: new Uint32Array(6),
    };
    const seen: number[][] = [];
    pieces(blocks, 1, ({ from, to, offset }) => seen.push([from, to, offset]));
    assert.deepEqual(seen, [
        [1, 3, 100],
        [3, 6, 0],
    ]);
    const at = (column: number, bytes: number) => shapeAt(blocks, column, bytes);
    assert.deepEqual([at(0, 50), at(1, 50), at(1, 120), at(3, 20), at(3, 60), at(0, 120)], [0, 0, 1, 1, -1, -1]);
    assert.deepEqual([stackAt(blocks, 0), stackAt(blocks, 2), stackAt(blocks, 6)], [[0], [0, 1], []]);
});

test('bands keep their order in every range', () => {
    const group = (label: string, category: string | null = null) => {
        return { label, category, purpose: category, light: '', dark: '', inferred: false };
    };
    const bands = (...labels: string[]): Bands => ({
        groups: labels.map((label) => group(label)),
        values: Float64Array.from(labels.flatMap((_, row) => [row, 10 * row])),
        totals: new Float64Array(2),
        instants: new Uint32Array(2),
    });
    const labels = (of: Bands) => of.groups.map((each) => each.label);
    const near = ordered(bands('new', 'b', 'a', '(other)'), 2, ['a', 'b', 'c'], 'file');
    assert.deepEqual(labels(near), ['a', 'b', 'new', '(other)']);
    assert.deepEqual([...near.values], [2, 20, 1, 10, 0, 0, 3, 30]);
    const sites = bands('c', 'a', 'b', '(other)');
    const [c, a, b, other] = sites.groups;
    sites.groups = [{ ...c, category: 'activation' }, { ...a, category: 'activation' }, { ...b, category: 'parameter' }, other];
    const byCategory = ordered(sites, 2, ['a', 'b', 'c'], 'site');
    assert.deepEqual(labels(byCategory), ['b', 'a', 'c', '(other)']);
    assert.deepEqual(labels(ordered(bands('forward', 'backward', 'other', 'optimizer'), 2, ['forward'], 'phase')), ['other', 'optimizer', 'forward', 'backward']);
    // Bands of one hue that touch have a line between them.
    assert.deepEqual(touching(byCategory), [false, true, false, false]);
});

test('labels are cut at the end, and left out where hardly anything fits', () => {
    const pen = { measure: (text: string) => 6 * text.length } as unknown as Pen;
    assert.equal(fitting(pen, 'train.py:58 forward', 200), 'train.py:58 forward');
    assert.equal(fitting(pen, 'train.py:58 forward', 80), 'train.py:58 …');
    assert.equal(fitting(pen, 'train.py:58 forward', 20), '');
    for (let width = 0; width < 130; width++) assert.ok(6 * fitting(pen, 'train.py:58 forward', width).length <= width);
});
