import assert from 'node:assert/strict';
import test from 'node:test';
import { differing } from '../../src/differing.ts';

test('steps that differ from the median are listed, the farthest first', () => {
    const [above, below] = [[0, 5, 0, 2, 0], [0, 0, 9, 5, 0]].map((bytes) => Float64Array.from(bytes));
    assert.deepEqual(differing({ above, below }), [
        { step: 2, above: 0, below: 9 },
        { step: 1, above: 5, below: 0 },
        { step: 3, above: 2, below: 5 },
    ]);
});
