/** Each row of the book's table of features has a test in a browser, or is said to be missing. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';

const ROOT = process.env.MEMVIZ_ROOT ?? path.resolve('..');

/** The file in `test/browser`, and the beginning of the name of the test there. */
const TRIED: Record<string, [file: string, name: string]> = {
    'Allocated memory over time': ['features', 'allocated memory over time is that of memviz peak at each instant'],
    'Reserved memory by segment over time (the cached-segment timeline)': ['totals', 'reserved memory over time has a band for each segment'],
    'Segments and blocks at any event': ['features', 'segments and blocks are shown at any event'],
    'List of events, with single-stepping and animation': ['features', 'buttons go from event to event, and play goes on by itself'],
    'Stack under the pointer; a click keeps it': ['features', 'a click keeps the stack under the pointer'],
    'Drop a file; nothing is uploaded': ['dropped', 'a dropped folder of ranks is opened'],
    'What the figures mean, in words': ['features', 'the headline and the findings are in the words of memviz triage'],
    'Memory that fragmentation strands, and the blocks that keep it reserved': ['stranded', 'holders of stranded memory are outlined'],
    'Live blocks by line of your own code': ['features', 'rows by site are lines of the program'],
    'Failed requests in the timeline': ['oom', 'a failed request is marked at the end of the curve'],
    'Samples to try': ['page', 'a static site has an empty page and samples'],
    'Flame graph of what is held': ['features', 'the flame graph of an instant has the bytes of memviz peak'],
    'Flame graph of a range of time': ['compared', 'a dragged range shows what was allocated, freed and survived'],
    'Sortable table of allocations': ['features', 'the table is sorted by any of its columns'],
    'Source lines in stacks': ['tracks', 'the folder of a program shows its lines in stacks'],
    'Statistics of a selected range': ['compared', 'a dragged range shows what was allocated, freed and survived'],
    'Callers and callees of a function': ['functions', 'a function is shown with its callers and callees'],
    'Difference between two profiles as a flame graph': ['compared', 'the difference of two recordings is a flame graph'],
    'Search by regular expression': ['moving', 'a search is shown everywhere, and a bad one says so'],
    'Tracks of counters, phases and annotations': ['tracks', 'the pointer says what a track shows'],
    'Pinned and collapsed tracks': ['tracks', 'eight ranks of one run are shown below each other'],
    'Several processes in one view': ['tracks', 'ranks that were recorded at the same time are aligned by their clocks'],
    'A link to what is shown': ['moving', 'a link shows the same again'],
};

test('each feature in the book has a test in a browser, or is missing', () => {
    const book = readFileSync(path.join(ROOT, 'docs/src/commands/view.md'), 'utf8');
    const [, table] = book.split('| Feature | Other tools that have it | In memviz |\n|---|---|---|\n');
    const rows = table.split('\n\n')[0].split('\n').map((row) => row.split('|').map((cell) => cell.trim()));
    assert.ok(rows.length > 20);
    const named = new Set(Object.keys(TRIED));
    for (const [, feature, , here] of rows) {
        if (here.startsWith('missing')) continue;
        assert.ok(named.delete(feature), `no test is named for: ${feature}`);
        const [file, name] = TRIED[feature];
        const tests = readFileSync(path.join(ROOT, `viewer/test/browser/${file}.test.ts`), 'utf8');
        assert.ok(tests.includes(`test('${name}`), `${file}.test.ts has no test: ${name}`);
    }
    assert.deepEqual([...named], [], 'the book has a row for each');
});
