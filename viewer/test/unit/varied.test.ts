import assert from 'node:assert/strict';
import test from 'node:test';
import { typedVary, varyOf } from '../../src/varied.ts';

test('file names say what varies, as on the command line', () => {
    assert.deepEqual(varyOf(['run_batch4.pickle', 'run_batch16.pickle']), { name: 'batch', values: [4, 16] });
    assert.deepEqual(varyOf(['2024/4.pickle', '2024/8.pickle']), { name: 'size', values: [4, 8] });
    assert.equal(varyOf(['a4_b1.pickle', 'a8_b2.pickle']), null, 'two numbers');
    assert.equal(varyOf(['a.pickle', 'b.pickle']), null, 'no number');
});

test('typed text has a name and a value for each recording', () => {
    assert.deepEqual(typedVary(' batch = 4, 8 ', 2), { name: 'batch', values: [4, 8] });
    for (const text of ['batch', '=4,8', 'batch=4', 'batch=4,8,16', 'batch=0,8', 'batch=4,']) assert.equal(typedVary(text, 2), null, text);
});
