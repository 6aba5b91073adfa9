/** Recordings without a history: what is known at dump time, and why no more is. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, drop, exact, fixture, inPage, pageFile, ready, rested, settled } from './support.ts';

interface Fragmented {
    devices: { allocated_bytes: number; reserved_bytes: number; inactive_bytes: number }[];
}

const STILL = ['no_history', 'state_only'].map((name) => fixture(`snapshots/${name}/snapshot.pickle.gz`));

after(support.close);

test('without a history the page opens at the segments, and says what is known and why no more', async () => {
    for (const recording of STILL) {
        const [device] = answer<Fragmented>('fragmentation', recording, '--at', 'end').devices;
        await inPage(pageFile(recording), '', async (page) => {
            await ready(page);
            assert.equal(await page.getAttribute('#tab-segments', 'aria-selected'), 'true');
            for (const of of ['#timelines', '#minimap', '#split', '#where .buttons', '[aria-label="Axis"]']) assert.ok(await page.isHidden(of), of);
            const figures = (await page.textContent('#figures')) ?? '';
            const known = { 'allocated at the dump': device.allocated_bytes, 'reserved at the dump': device.reserved_bytes, 'free in segments': device.inactive_bytes };
            for (const [words, bytes] of Object.entries(known))
                assert.ok(figures.includes(`${words}${size(bytes)}${bytes.toLocaleString('en-US')}`), `${words} ${bytes}: ${figures}`);
            assert.match(figures, /(no history was recorded|incomplete history).*is unknown/);
            const because = recording.includes('no_history') ? 'No history was recorded' : 'The history has a single entry';
            for (const [tab, unknown] of [
                ['blocks', 'memviz does not know when blocks were allocated and freed'],
                ['tracks', 'there is nothing to show over time'],
                ['whatif', 'memviz does not know the requests of the program and cannot simulate them'],
            ] as const) {
                await page.click(`#tab-${tab}`);
                await settled(page);
                const said = await page.innerText(`#panel-${tab}`);
                assert.ok(said.includes(`${because}: ${unknown}.`), said);
                assert.match(said, /To record one, call torch\.cuda\.memory\._record_memory_history\(\)/);
                assert.equal(await page.locator(`#panel-${tab} :is(canvas, input):visible`).count(), 0, tab);
            }
            // A history limited to one entry has that entry.
            await page.click('#tab-events');
            await settled(page);
            if (recording.includes('no_history')) assert.match(await page.innerText('#panel-events'), /there are no events/);
            else assert.equal(await page.locator('.events .line').count(), 1);
            await page.click('#tab-table');
            await rested(page);
            const total = [...(await exact(page)).values()].reduce((sum, bytes) => sum + bytes, 0);
            assert.equal(total, device.allocated_bytes);
            assert.match(page.url(), /tab=table/);
        });
    }
});

test('a recording with a history beside one without it is shown over time', async () => {
    await inPage(pageFile(STILL[0]), '', async (page) => {
        await ready(page);
        await drop(page, fixture('snapshots/gpt_train/snapshot.pickle.gz'));
        await ready(page, 2);
        assert.equal(await page.locator('#timelines canvas:visible').count(), 2);
        await page.click('#tab-blocks');
        await settled(page);
        assert.equal(await page.locator('#panel-blocks canvas:visible').count(), 2);
        assert.match((await page.textContent('#figures')) ?? '', /A: allocated at the dump.*B: peak allocated/);
    });
});
