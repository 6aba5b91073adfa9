import assert from 'node:assert/strict';
import test from 'node:test';
import { read, write } from '../../src/hash.ts';
import type { State } from '../../src/state.ts';

const initial: State = {
    device: 0,
    axis: 'entry',
    from: 0,
    to: 100,
    metric: 'allocated',
    by: 'site',
    at: 5,
    mark: null,
    at2: 0,
    tab: 'table',
    flame: null,
    around: '',
    cures: '',
    conf: null,
    capacity: 0,
    changes: '',
    vary: '',
    value: 0,
    listed: 'all',
    least: 0,
    packed: false,
    pinned: '',
    folded: '',
    selected: null,
    query: '',
    found: 0,
    fit: false,
};

test('a state is restored from its link', () => {
    const states: Partial<State>[] = [
        {},
        {
            device: 3,
            axis: 'time',
            from: 1.5,
            to: 99.25,
            metric: 'active',
            by: 'category',
            at: 7,
            mark: 2,
            at2: 9,
            tab: 'flame',
            flame: 'difference',
            fit: true,
        },
        { selected: { label: 'a&b=c #d%\u202e', isBand: false }, query: 'forward|\\d+' },
        { selected: { allocation: 12, second: false } },
        { selected: { allocation: 0, second: true } },
        { selected: { entry: 0, second: false }, tab: 'events' },
        { selected: { entry: 6362, second: true } },
        { selected: { label: 'train.py:3 step', isBand: true }, by: 'function' },
        { device: 3, at: 5, at2: 0 },
        { device: -1 },
        { cures: '0,2', around: 'minigpt.py hidden' },
        { conf: 'expandable_segments:True', capacity: 24 * 2 ** 30, tab: 'whatif' },
        { conf: '', vary: 'batch=4,8', value: 16, packed: true },
        { listed: 'frees', least: 2 ** 20, pinned: '0.0.allocated,1.-1.requested', folded: '3.2' },
    ];
    for (const changes of states) {
        const state = { ...initial, ...changes };
        assert.deepEqual({ ...initial, ...read(`#${write(state, initial)}`) }, state);
    }
    assert.equal(write(initial, initial), '');
});

test('the ends of a range are only as precise as a screen shows them', () => {
    const link = (from: number, to: number) => write({ ...initial, from, to }, initial);
    assert.equal(link(1234.56789, 987654.321), 'from=1235&to=987654');
    assert.equal(link(3.123456, 4.987654), 'from=3.123&to=4.988');
});

test('a hash says that all is shown if no hash would show something else', () => {
    assert.equal(write(initial, initial, 'from=3&to=5'), 'all');
    assert.deepEqual(read('#all'), {});
});

test('invalid parts of a link are ignored', () => {
    assert.deepEqual(read('#device=x&x=pages&from=5&to=1&at=-3&mark=1.5&tab=about&metric=all&allocation=&fit=2'), {});
    assert.deepEqual(read('#from=NaN&to=Infinity&at=1e400'), {});
    assert.deepEqual(read('#allocation=4294967296'), {}, 'ids have 32 bits');
    assert.deepEqual(read(''), {});
});
