import assert from 'node:assert/strict';
import test from 'node:test';
import type { Frame } from '../../engine/engine.d.ts';
import { bytes, cut, duration, entry, growth, name, safe, share, typedBytes, whole } from '../../src/format.ts';
import { stackLines } from '../../src/tip.ts';

test('bytes are written as PyTorch writes them', () => {
    const cases: [number, string][] = [
        [0, '0 bytes'],
        [1023, '1023 bytes'],
        [1024, '1.00 KiB'],
        [1024 ** 2 - 1, '1024.00 KiB'],
        [4_453_794_816, '4.15 GiB'],
        [5 * 1024 ** 4, '5120.00 GiB'],
    ];
    for (const [count, text] of cases) assert.equal(bytes(count), text);
    assert.equal(growth(512), '+512 bytes');
    assert.equal(growth(-2048), '-2.00 KiB');
    assert.equal(growth(0), '0 bytes');
    assert.equal(whole(4_453_794_816), '4,453,794,816');
});

test('durations are written as on the command line', () => {
    const cases: [number, string][] = [
        [812, '812 us'],
        [3400, '3.4 ms'],
        [12_530_000, '12.53 s'],
        [61_000_000, '1 min 01 s'],
        [7_500_000_000, '2 h 05 min'],
    ];
    for (const [micros, text] of cases) assert.equal(duration(micros), text);
});

test('an instant is named by the entry before it', () => {
    assert.equal(entry(0), 'the start');
    assert.equal(entry(2940), 'entry 2,939');
});

test('zero of zero has no percentage', () => {
    assert.equal(share(0, 0), '');
    assert.equal(share(1, 3), '33.3%');
});

test('characters that hide or reorder text are escaped', () => {
    assert.equal(safe('a\u001b[31mb\u202e'), 'a\\u{1b}[31mb\\u{202e}');
    assert.equal(safe('\u200bzero\u{e0041}'), '\\u{200b}zero\\u{e0041}');
    assert.equal(safe('a\ud800b'), 'a\\u{d800}b');
    assert.equal(safe('Größe 漢字 <b>&amp;'), 'Größe 漢字 <b>&amp;');
});

test('long names lose their middle', () => {
    assert.equal(cut('abcdefghij', 5), 'ab…ij');
    assert.equal(cut('abc', 5), 'abc');
    assert.equal(name('x'.repeat(100_000), 20).length, 20);
    assert.ok(name(`${'a'.repeat(50_000)}END`, 30).endsWith('END'));
    assert.ok(!name('\u202e'.repeat(200), 40).includes('\u202e'));
});

test('sizes can be typed in the usual ways', () => {
    const cases: [string, number | null][] = [
        ['', 0],
        ['4096', 4096],
        ['1 MiB', 1024 ** 2],
        ['1.5g', 1.5 * 1024 ** 3],
        ['20 KB', 20 * 1024],
        ['many', null],
        ['1 MiB more', null],
    ];
    for (const [text, bytes] of cases) assert.equal(typedBytes(text), bytes, text);
});

test('at the pointer a stack begins with frames of the program if they would be cut off otherwise', async () => {
    const frames = (libraries: number, own: number): Frame[] =>
        Array.from({ length: libraries + own }, (_, at) => ({ label: `f${at}`, path: '', own: at >= libraries }));
    const said = async (...of: [number, number]) => (await stackLines(frames(...of))).map(({ text }) => text);
    assert.deepEqual(await said(2, 1), ['f0', 'f1', 'f2']);
    assert.deepEqual(await said(40, 2), ['40 library frames, called by', 'f40', 'f41']);
    assert.deepEqual((await said(40, 20)).at(-1), '4 more frames');
    assert.deepEqual((await said(20, 0)).slice(-2), ['f15', '4 more frames']);
    assert.deepEqual(await said(0, 0), ['no stack was recorded']);
});
