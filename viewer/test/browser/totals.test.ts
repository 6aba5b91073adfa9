/** The page shows the same figures as the command line. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, exact, fixture, inPage, link, pageOf, type Peak, place, ready, settled } from './support.ts';

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const MULTI = fixture('snapshots/multi_gpu/snapshot.pickle.gz');

after(support.close);

test('the totals of each device are those of memviz peak', async () => {
    for (const recording of [GPT, MULTI, fixture('traces/profiler_traces/fake_cuda_modules.trace.json.gz')]) {
        const { devices } = answer<Peak>('peak', recording);
        await inPage(pageOf(recording), '', async (page) => {
            await ready(page);
            for (const device of devices) {
                if (devices.length > 1) await page.selectOption('select[aria-label="Device"]', String(device.device));
                await settled(page);
                const shown = await page.textContent('[data-figure="peak-allocated"] .exact');
                assert.equal(
                    Number(shown?.replaceAll(',', '')),
                    device.maxima.allocated_bytes,
                    `${recording}, device ${device.device}`,
                );
                const rows = await exact(page);
                const total = [...rows.values()].reduce((sum, bytes) => sum + bytes, 0);
                assert.equal(total, device.attribution.total_bytes);
            }
        });
    }
});

test('rows by anything are those of memviz peak --by', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        for (const by of ['category', 'stack', 'function', 'phase']) {
            await page.selectOption('select[aria-label="Groups"]', by);
            await settled(page);
            const wanted = answer<Peak>('peak', GPT, '--by', by, '--device', '0').devices[0].attribution.rows;
            const rows = await exact(page);
            assert.equal(rows.size, new Set(wanted.map((row) => row.label)).size, by);
            if (by !== 'stack')
                for (const row of wanted) assert.equal(rows.get(row.label), row.bytes, `${by}: ${row.label}`);
        }
        assert.equal((await link(page)).get('by'), 'phase');
    });
});

test('a group is shown with its stack, the user\'s own frames first', async () => {
    await inPage(pageOf(GPT), '#by=stack', async (page) => {
        await ready(page);
        await page.click('#panel-table tbody tr:has-text("minigpt.py")');
        await settled(page);
        const first = await page.$$eval('#details ol.stack', ([list]) =>
            [...list.children].map((frame) => frame.className),
        );
        assert.ok(first.length > 0 && first.every((each) => each === 'own'), String(first));
        assert.match((await page.textContent('#details summary')) ?? '', /^all \d+ frames$/);
    });
});

test('reserved memory is that of memviz peak, by the site that requested its segments', async () => {
    await inPage(pageOf(GPT), '#metric=reserved', async (page) => {
        await ready(page);
        await page.click('text=peak');
        await settled(page);
        const wanted = answer<Peak>('peak', GPT, '--metric', 'reserved').devices[0].attribution.rows;
        const rows = await exact(page);
        for (const row of wanted) assert.equal(rows.get(row.label), row.bytes, row.label);
        for (const tab of ['blocks', 'segments']) {
            await page.click(`#tab-${tab}`);
            await settled(page);
        }
        await page.fill('#search', 'forward');
        await page.waitForFunction(() => /found$/.test(document.getElementById('found')?.textContent ?? ''));
        await page.selectOption('select[aria-label="Groups"]', 'category');
        await settled(page);
        assert.equal((await link(page)).get('metric'), null);
        assert.ok(await page.isHidden('#alarm'));
    });
});

test('reserved memory over time has a band for each segment', async () => {
    await inPage(pageOf(GPT), '#metric=reserved&tab=blocks', async (page) => {
        await ready(page);
        const [{ maxima }] = answer<Peak>('peak', GPT).devices;
        // The lowest band is the oldest segment, which the first request created.
        const [x, y] = await place(page, 0.9, 0.8, '#panel-blocks');
        await page.mouse.move(x, y);
        await page.waitForSelector('.tip:not([hidden]) .strong');
        const tip = (await page.textContent('.tip')) ?? '';
        assert.match(tip, /a segment since entry [\d,]+/);
        assert.ok(tip.includes(size(maxima.reserved_bytes)), tip);
        await page.mouse.click(x, y);
        await settled(page);
        assert.match((await page.textContent('#details h2')) ?? '', /^segment_alloc, entry [\d,]+$/);
        const entry = Number((await link(page)).get('entry'));
        assert.ok(tip.includes(`entry ${entry.toLocaleString('en-US')}`), tip);
        // The keyboard moves to the next band above it, which is newer.
        await page.focus('#panel-blocks canvas');
        await page.keyboard.press('ArrowUp');
        await settled(page);
        assert.ok(Number((await link(page)).get('entry')) > entry);
    });
});

test('a page of a part of a recording says so, and has the peak of that part', async () => {
    const window = ['--from', 'entry:100', '--to', 'entry:2500'];
    await inPage(support.written('view', GPT, ...window), '', async (page) => {
        await ready(page);
        assert.equal(await page.textContent('#file'), 'snapshot.pickle.gz, entries 101 to 2500 of 9107');
        const shown = await page.textContent('[data-figure="peak-allocated"] .exact');
        const wanted = answer<{ devices: { peak: { allocated_bytes: number } }[] }>('peak', GPT, ...window);
        assert.equal(Number(shown?.replaceAll(',', '')), wanted.devices[0].peak.allocated_bytes);
        for (const tab of ['blocks', 'segments', 'flame', 'events', 'findings']) {
            await page.click(`#tab-${tab}`);
            await settled(page);
        }
        assert.ok(await page.isHidden('#alarm'));
    });
});
