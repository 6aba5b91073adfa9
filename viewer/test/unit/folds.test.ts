import assert from 'node:assert/strict';
import test from 'node:test';
import { foldedAt, foldedTicks, timeAxis } from '../../src/folds.ts';
import { axisTicks } from '../../src/plot.ts';

/** Two periods of 80 and 90 seconds, each as long as a second on the axis. */
const folds = { periods: [[10e6, 90e6], [100e6, 190e6]] as [number, number][], length: 1e6 };

test('time continues after a fold, and is shortened in it', () => {
    const at = [0, 10, 50, 90, 95, 100, 190, 200].map((seconds) => foldedAt(folds, seconds * 1e6) / 1e6);
    assert.deepEqual(at, [0, 10, 10.5, 11, 16, 21, 22, 32]);
});

test('ticks are equally far from each other in all parts, and none is in a fold', () => {
    const ticks = foldedTicks(folds, 0, 32e6, (from, to) => axisTicks('time', from, to, 8, 5));
    assert.deepEqual(
        ticks.map(({ at, text }) => [at / 1e6, text]),
        [[0, '0 s'], [5, '5 s'], [10, '10 s'], [11, '90 s'], [16, '95 s'], [21, '100 s'], [22, '190 s'], [27, '195 s'], [32, '200 s']],
    );
    // A part of the axis between the folds.
    assert.deepEqual(foldedTicks(folds, 12e6, 20e6, (from, to) => axisTicks('time', from, to, 8, 5)).map(({ text }) => text), ['95 s']);
});

test('several recordings have no common folds', () => {
    const [one, none] = [{ figures: { folds } }, { figures: { folds: { periods: [], length: 0 } } }];
    assert.deepEqual([[one], [none], [one, none]].map(timeAxis), ['folded', 'time', 'time']);
});
