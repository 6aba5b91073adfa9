import assert from 'node:assert/strict';
import test from 'node:test';
import type { Cure, Finding } from '../../engine/engine.d.ts';
import { switched } from '../../src/cures.ts';
import type { State } from '../../src/state.ts';

const cure = (place: number, combines = true): Cure => ({ place, combines, saves_allocated_bytes: 1, saves_reserved_bytes: 1 });

function finding(own: Cure, ...others: Cure[]): Finding {
    const alternatives = others.map((other) => ({ sentence: '', lines: [''], code: [], cure: other }));
    const rest = { kind: 'advice', severity: 'note', sentence: '', lines: [], code: [], command: '', options: '', instant: null, from: null, to: null };
    return { ...rest, device: 0, cure: own, alternatives };
}

const with_ = (cures: string) => ({ cures }) as State;

test('fixes that go together stay switched on, but only one for each mistake', () => {
    const [first, second, third] = [cure(0), cure(1), cure(2)];
    const [other, another] = [cure(3), cure(4)];
    const found = [finding(first, other, another), finding(second), finding(third)];
    assert.equal(switched(found, 0, second, with_('0'), true), '0,1');
    assert.equal(switched(found, 0, other, with_('0,1'), true), '1,3');
    assert.equal(switched(found, 0, another, with_('1,3'), true), '1,4');
    assert.equal(switched(found, 0, first, with_('1,4'), true), '0,1');
    assert.equal(switched(found, 0, other, with_('1,3'), false), '1');
});

test('a fix that does not go with others is switched on alone', () => {
    const [lives, settings] = [cure(0), cure(1, false)];
    const found = [finding(lives), finding(settings)];
    assert.equal(switched(found, 0, settings, with_('0'), true), '1');
    assert.equal(switched(found, 0, lives, with_('1'), true), '0');
    // A number from an old link that does not exist.
    assert.equal(switched(found, 0, lives, with_('7'), true), '0');
});
