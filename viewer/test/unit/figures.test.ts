import assert from 'node:assert/strict';
import test from 'node:test';
import type { SegmentMap } from '../../engine/engine.d.ts';
import { alongSteps, STEP } from '../../src/aligned.ts';
import { between } from '../../src/bounds.ts';
import { devicesOf } from '../../src/lane.ts';
import { axisTicks } from '../../src/plot.ts';
import { edgesOf, openAt, spanAt } from '../../src/ribbons.ts';
import { lastUpTo } from '../../src/rising.ts';
import { found, type Line, paired, shown } from '../../src/rows.ts';
import { behind, runs } from '../../src/runs.ts';

function line(label: string, bytes: number): Line {
    const color = { light: '', dark: '' };
    return { label, purpose: null, base: null, was: '', color, inferred: false, stack: [], second: false, blocks: 1, before: null, bytes, flow: null };
}

test('rows of two recordings are those that belong together, also if a line moved or labels repeat', () => {
    const partners = [
        { base: 2, was: '' },
        { base: null, was: '' },
        { base: 1, was: ' (was line 5)' },
    ];
    const before = [line('a', 10), line('b.py:5 f', 5), line('a', 7)];
    const lines = paired(before, [line('a', 4), line('c', 1), line('b.py:6 f', 2)], partners);
    assert.deepEqual(
        lines.map(({ label, was, before, bytes }) => [label + was, before, bytes]),
        [
            ['a', 10, 0],
            ['a', 7, 4],
            ['b.py:6 f (was line 5)', 5, 2],
            ['c', 0, 1],
        ],
    );
    assert.equal(found({ lines, before: 22, total: 7, flow: null, inclusive: false, heads: ['', ''], notes: [] }, 'b.py:5 f')?.bytes, 2);
});

test('hidden rows are still found, and overlapping rows are not added up', () => {
    const lines = Array.from({ length: 310 }, (_, at) => line(at === 309 ? 'l0' : `l${at}`, 1000 - at));
    const heads: [string, string] = ['', ''];
    const content = { lines, before: null, total: 0, flow: null, inclusive: false, heads, notes: [] };
    const total = (of: readonly Line[]) => of.reduce((sum, { bytes }) => sum + bytes, 0);
    assert.equal(total(shown(content)), total(lines));
    assert.equal(shown({ ...content, inclusive: true }).length, 300);
    assert.equal(found(content, 'l305')?.bytes, 695);
    assert.deepEqual([found(content, 'l0')?.bytes, found(content, 'l0')?.blocks], [1691, 2]);
    assert.equal(found(content, '(other)'), null);
});

test('an instant is within the same annotations as the entry before it', () => {
    const annotation = { name: 'a', from_us: 70, to_us: 90, from: 3, to: 5, depth: 0, from_step: 5e5, to_step: 2e6, from_folded: 30, to_folded: 50 };
    const open = [2, 3, 4, 5, 6].filter((instant) => openAt([annotation], instant).length > 0);
    assert.deepEqual(open, [4, 5]);
    assert.deepEqual(edgesOf(annotation, 'entry'), [4, 6]);
    assert.deepEqual(edgesOf(annotation, 'time'), [70, 90]);
    assert.deepEqual(edgesOf(annotation, 'step'), [5e5, 2e6]);
    assert.deepEqual(edgesOf(annotation, 'folded'), [30, 50]);
    const plot = { box: { x: 0, y: 0, width: 100, height: 10 }, from: 0, to: 100, top: 1 };
    const there = [69, 71, 89, 91].map((x) => spanAt(plot, 0, [[annotation]], 'time', x, 5) !== null);
    assert.deepEqual(there, [false, true, true, false]);
});

test('all steps are equally long on their axis, even a step without entries', () => {
    const ends = [10, 30, 30, 40];
    const steps = ends.map((to, at) => ({ from: at === 0 ? 0 : ends[at - 1], to }));
    const along = (entry: number) => alongSteps(steps, 50, entry) / STEP;
    assert.deepEqual([0, 5, 10, 20, 29, 30, 35, 40, 45, 50].map(along), [0, 0.5, 1, 1.5, 1.95, 3, 3.5, 4, 4.5, 5]);
    assert.equal(alongSteps(steps, 40, 40) / STEP, 4);
    const labels = axisTicks('step', 0, 3 * STEP, 4).map(({ text }) => text);
    assert.deepEqual(labels, ['0 steps', '1 step', '2 steps', '3 steps']);
});

test('blocks thinner than a pixel are drawn together, and nothing is lost', () => {
    const sizes = [1, 1, 1, 1, 50, 2, 1, 1, 9, 4];
    let offset = 0;
    const blocks: SegmentMap['segments'][number]['blocks'] = sizes.map((bytes) => {
        const block = { offset, bytes, state: 'allocated', allocation: offset, keeps: 0 };
        offset += bytes;
        return block;
    });
    const drawn = runs(blocks, 4);
    assert.deepEqual(
        drawn.map((run) => [run.offset, run.bytes, run.block.bytes]),
        [
            [0, 4, 1],
            [4, 50, 50],
            [54, 4, 2],
            [58, 9, 9],
            [67, 4, 4],
        ],
    );
    assert.deepEqual(
        [0, 3, 4, 53, 54, 71].map((at) => behind(drawn, at)),
        [0, 0, 1, 1, 2, 5],
    );
});

test('two peaks differ only as far as that is known', () => {
    const peak = (bytes: number, bound: string | null = null) => ({ bytes, bound, instant: 0 });
    assert.equal(between(peak(5), peak(5)), 'Both peaks are the same');
    assert.equal(between(peak(2048), peak(1024)), 'The peak of B is 1.00 KiB lower than that of A');
    assert.equal(between(peak(1024), peak(3072, 'lower')), 'The peak of B is at least 2.00 KiB higher than that of A');
    assert.match(between(peak(1024, 'lower'), peak(3072)), /^It is unknown which peak is higher: .* at least 1\.00 KiB/);
    assert.match(between(peak(5, 'lower'), peak(5)), /unknown/);
});

test('devices of two files are those of either file', () => {
    const of = (...devices: number[]) => ({ figures: { devices: devices.map((device) => ({ device, name: '' })) } });
    assert.deepEqual(
        devicesOf([of(0, 2), of(1, 2, -1)]).map(({ device }) => device),
        [0, 2, 1, -1],
    );
});

test('the last number up to a limit is found in an ascending list', () => {
    const list = Uint32Array.of(0, 5, 9);
    assert.deepEqual(
        [-1, 0, 4, 5, 9, 12].map((value) => lastUpTo(list, value)),
        [-1, 0, 0, 1, 2, 2],
    );
});
