/** Tracks of devices and ranks, and folders of recordings or of a program's source files. */

import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { gunzipSync } from 'node:zlib';
import type { Page } from 'playwright-core';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, fixture, inPage, onlyChromium, pageFile, ready, rested, settled, written } from './support.ts';

interface Peak {
    devices: { device: number; maxima: Record<string, number> }[];
}

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const folder = mkdtempSync(path.join(tmpdir(), 'memviz-folder-'));

after(async () => {
    rmSync(folder, { recursive: true });
    await support.close();
});

/** Chooses a folder, or files. */
async function choose(page: Page, words: string, files: string | string[]): Promise<void> {
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click(`#actions >> text=${words}`)]);
    await chooser.setFiles(files);
}

const labels = (page: Page, kind: string): Promise<string[]> =>
    page.$$eval(`.tracks .scrolled .track.${kind}`, (all) => all.map((each) => each.firstElementChild?.textContent ?? ''));

test('eight ranks of one run are shown below each other, with the peaks of memviz peak', async () => {
    const ranks = [...Array(8).keys()].map((rank) => fixture(`snapshots/ranks8/rank${rank}.pickle.gz`));
    await inPage(pageFile(null), '', async (page) => {
        await page.waitForSelector('#welcome:not([hidden])');
        await choose(page, 'Open…', ranks);
        await ready(page);
        assert.equal(await page.textContent('#file'), 'rank0.pickle.gz and 7 more');
        await page.click('#tab-tracks');
        await settled(page);
        const heads = await labels(page, 'head');
        assert.equal(heads.length, 8);
        for (const [rank, recording] of ranks.entries()) {
            const [{ maxima }] = answer<Peak>('peak', recording).devices;
            assert.ok(heads[rank].includes(`rank${rank}.pickle.gz`) && heads[rank].includes(size(maxima.allocated_bytes)), heads[rank]);
        }
        // A folded rank shows only its header; a pinned track stays above all others.
        const count = (await labels(page, 'counter')).length;
        assert.equal(count % 8, 0);
        await page.locator('.track.head button').first().click();
        await settled(page);
        assert.equal((await labels(page, 'counter')).length, (count / 8) * 7);
        await page.locator('.track .pin').first().focus();
        await page.keyboard.press('Enter');
        await settled(page);
        assert.equal(await page.locator('.tracks > .pinned .track').count(), 1);
        // Another rank becomes the one that all views show.
        await page.locator('.track.head >> text=open').nth(2).click();
        await ready(page, 2);
        assert.equal(await page.textContent('#file'), 'rank3.pickle.gz and 7 more');
        const [{ maxima }] = answer<Peak>('peak', ranks[3]).devices;
        const exact = await page.textContent('[data-figure="peak-allocated"] .exact');
        assert.equal(Number(exact?.replaceAll(',', '')), maxima.allocated_bytes);
    });
});

test('ranks that were recorded at the same time are aligned by their clocks', async () => {
    const trace = JSON.parse(gunzipSync(readFileSync(fixture('traces/profiler_traces/fake_cuda_modules.trace.json.gz'))).toString());
    /** The same recording, shifted to this many milliseconds later. */
    const later = (milliseconds: number, at: number) =>
        support.scratch(
            `rank${at}.json`,
            JSON.stringify({ ...trace, baseTimeNanoseconds: trace.baseTimeNanoseconds + milliseconds * 1e6 }),
        );
    const starts = async (milliseconds: number[], look: (page: Page, heads: string[]) => Promise<void>) => {
        const run = async (page: Page) => {
            await page.waitForSelector('#welcome:not([hidden])');
            await choose(page, 'Open…', milliseconds.map(later));
            await ready(page);
            await page.click('#tab-tracks');
            await settled(page);
            const heads = await labels(page, 'head');
            await look(page, heads.filter((head) => head.includes('Device 0')));
        };
        // High enough for all tracks at once.
        await inPage(pageFile(null), '', run, { viewport: { width: 1280, height: 2400 } });
    };
    await starts([0, 3, -2], async (page, heads) => {
        assert.ok(!/starts/.test(heads[0]), heads[0]);
        assert.match(heads[1], /; starts 3\.0 ms later/);
        assert.match(heads[2], /; starts 2\.0 ms earlier/);
        assert.equal(await page.locator('#controls [aria-pressed="true"]').first().textContent(), 'time');
        // The same instant of each recording: its place on the axis follows the clock.
        const box = (await page.locator('.tracks .scrolled canvas').boundingBox())!;
        const firsts: number[] = [];
        for (const at of [0, 1, 2]) {
            const track = (await page.locator('.tracks .scrolled .track.counter', { hasText: 'allocated' }).nth(at * (await count(page))).boundingBox())!;
            firsts.push(await firstEntry(page, box, track.y + 20));
        }
        const [first, second, third] = firsts;
        assert.ok(second > first + 20 && third < first - 10, String(firsts));
        assert.ok(Math.abs((second - first) / 3 - (first - third) / 2) < 2, String(firsts));
    });
    // Recorded one after the other, each starts with its own first entry.
    await starts([0, 60_000, 120_000], async (_, heads) => {
        for (const head of heads) assert.ok(!/starts/.test(head), head);
    });
});

/** Number of counters of allocated memory for each recording: one for each device. */
async function count(page: Page): Promise<number> {
    const all = await page.locator('.tracks .scrolled .track.counter', { hasText: 'allocated' }).count();
    return all / 3;
}

/** The x coordinate of a counter's first entry: left of it, the pointer shows no memory. */
async function firstEntry(page: Page, box: { x: number; width: number }, y: number): Promise<number> {
    const says = async (x: number) => {
        await page.mouse.move(x, y);
        const tip = page.locator('.tip:not([hidden])');
        return (await tip.count()) > 0 && /allocated/.test((await tip.textContent()) ?? '');
    };
    let [low, high] = [box.x + 69, box.x + box.width * 0.6];
    while (high - low > 0.5) {
        const middle = (low + high) / 2;
        if (await says(middle)) high = middle;
        else low = middle;
    }
    return high;
}

test('the pointer says what a track shows, and Ctrl with the wheel zooms', async () => {
    await inPage(pageFile(GPT, 'snapshot.pickle.gz'), '#tab=tracks', async (page) => {
        await ready(page);
        assert.deepEqual(await labels(page, 'counter'), ['allocated', 'reserved', 'requested']);
        assert.deepEqual(await labels(page, 'spans'), ['phases', 'steps', 'annotations', '', '']);
        const box = (await page.locator('.tracks .scrolled canvas').boundingBox())!;
        await page.mouse.move(box.x + 0.5 * box.width, box.y + 40);
        await page.waitForSelector('.tip:not([hidden])');
        assert.match((await page.textContent('.tip')) ?? '', /^[\d.]+ GiB allocatedentry [\d,]+ of/);
        await page.mouse.click(box.x + 0.5 * box.width, box.y + 40);
        await settled(page);
        const where = (await page.textContent('#where')) ?? '';
        assert.ok(where.includes(((await page.textContent('.tip')) ?? '').split('allocated')[0]), where);
        await page.keyboard.down('Control');
        await page.mouse.wheel(0, -300);
        await page.keyboard.up('Control');
        await rested(page);
        assert.match(page.url(), /from=\d/);
    });
});

test('samples of the whole device are a track if the command line finds some next to the recording', async () => {
    interface Ledger {
        devices: { samples: { used_bytes: number; total_bytes: number }[] }[];
    }
    const recording = fixture('ledger/snapshot.pickle.gz');
    const [{ samples }] = answer<Ledger>('ledger', recording).devices;
    await inPage(written('view', recording), '#tab=tracks', async (page) => {
        await ready(page);
        assert.ok((await labels(page, 'samples')).includes('device'));
        const [track, canvas] = [
            (await page.locator('.track.samples').boundingBox())!,
            (await page.locator('.tracks .scrolled canvas').boundingBox())!,
        ];
        const found = new Set<string>();
        for (let x = canvas.x + 70; x < canvas.x + canvas.width - 10; x += 4) {
            await page.mouse.move(x, track.y + 20);
            found.add((await page.locator('.tip').textContent()) ?? '');
        }
        const all = [...found].join('\n');
        for (const { used_bytes, total_bytes } of samples)
            assert.ok(all.includes(`${size(used_bytes)} of ${size(total_bytes)} in use`), `${size(used_bytes)}: ${all}`);
    });
});

test('the folder of a program shows its lines in stacks', onlyChromium('folders'), async () => {
    await inPage(pageFile(GPT, 'snapshot.pickle.gz'), '#tab=table', async (page) => {
        await ready(page);
        await page.locator('#panel-table tbody tr').first().click();
        await settled(page);
        const own = page.locator('#details ol.stack li.own').first();
        const [, file, line] = /^(.*):(\d+)$/.exec((await own.getAttribute('title')) ?? '')!;
        const there = path.join(folder, 'program', path.basename(path.dirname(file)));
        mkdirSync(there, { recursive: true });
        const lines = Array.from({ length: Number(line) }, (_, at) => (at + 1 === Number(line) ? '    y = layer(x)  # here' : ''));
        writeFileSync(path.join(there, path.basename(file)), lines.join('\n'));
        // A recording in the folder of a program is not opened: nobody asked for it.
        cpSync(GPT, path.join(folder, 'program', 'old.pickle.gz'));
        await choose(page, 'Folder…', path.join(folder, 'program'));
        await page.waitForSelector('#details code.source');
        assert.equal(await page.locator('#details li.own code.source').first().textContent(), 'y = layer(x)  # here');
        assert.equal(await page.textContent('#file'), path.basename(GPT));
    });
});

test('a folder of recordings is opened, in the order of their names', onlyChromium('folders'), async () => {
    const run = path.join(folder, 'run');
    mkdirSync(run);
    for (const rank of [0, 1, 2]) cpSync(fixture(`snapshots/ranks8/rank${rank}.pickle.gz`), path.join(run, `rank${rank}.pickle.gz`));
    writeFileSync(path.join(run, 'notes.txt'), 'none of these');
    await inPage(pageFile(null), '', async (page) => {
        await page.waitForSelector('#welcome:not([hidden])');
        await choose(page, 'Folder…', run);
        await ready(page);
        assert.equal(await page.textContent('#file'), 'rank0.pickle.gz and 2 more');
    });
});
