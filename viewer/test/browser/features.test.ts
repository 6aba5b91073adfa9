/** Features in the book's table that no other file tests. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, fixture, inPage, onlyChromium, pageFile, ready, rested, rows, settled } from './support.ts';

interface Peak {
    devices: {
        peak: { allocated_bytes: number };
        attribution: { total_bytes: number; rows: { label: string; bytes: number; blocks: number }[] };
    }[];
}

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const OOM = fixture('snapshots/oom/snapshot.pickle.gz');

after(support.close);

/** A point on a canvas, as fractions of its width and height. */
async function place(page: Page, host: string, across: number, down: number): Promise<[number, number]> {
    const box = await page.locator(`${host} canvas`).first().boundingBox();
    assert.ok(box, host);
    return [box.x + across * box.width, box.y + down * box.height];
}

/** The instant that the cursor is at. */
async function cursor(page: Page): Promise<number> {
    const where = (await page.textContent('#where .texts')) ?? '';
    const entry = /^at entry ([\d,]+) of/.exec(where)?.[1];
    assert.ok(entry, where);
    return Number(entry.replaceAll(',', ''));
}

test('allocated memory over time is that of memviz peak at each instant', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        for (const across of [0.15, 0.35, 0.55, 0.75, 0.95]) {
            await page.mouse.move(...(await place(page, '#timelines', across, 0.5)));
            await page.waitForSelector('.tip:not([hidden])');
            const tip = (await page.textContent('.tip')) ?? '';
            const entry = /entry ([\d,]+) of/.exec(tip)?.[1].replaceAll(',', '');
            const { peak } = answer<Peak>('peak', GPT, '--at', `entry:${entry}`).devices[0];
            assert.ok(tip.includes(`${size(peak.allocated_bytes)} allocated`), `${entry}: ${tip}`);
        }
    });
});

test('the headline and the findings are in the words of memviz triage', async () => {
    interface Triage {
        devices: { verdict: string; advice: { change: string; evidence: string; code: string }[] }[];
    }
    for (const recording of [GPT, OOM]) {
        const [{ verdict, advice }] = answer<Triage>('triage', recording).devices;
        assert.ok(advice.length > 0);
        await inPage(pageFile(recording), '#tab=findings', async (page) => {
            await ready(page);
            assert.equal(await page.textContent('#verdict'), verdict);
            const said = (await page.textContent('#panel-findings')) ?? '';
            for (const { change, evidence, code } of advice) {
                for (const words of [change, evidence, ...code.split('\n')]) assert.ok(said.includes(words), `${words}: ${said}`);
            }
        });
    }
});

test('rows by site are lines of the program, with the bytes and blocks of memviz peak', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        const wanted = answer<Peak>('peak', GPT).devices[0].attribution.rows;
        assert.ok(wanted.some(({ label }) => /^minigpt\.py:\d+ \w+$/.test(label)));
        const shown = (await rows(page)).map(([label, bytes, , blocks]) => [label, bytes, blocks]);
        const same = ({ label, bytes, blocks }: Peak['devices'][0]['attribution']['rows'][0]) =>
            shown.some((row) => row[0].replace(/ \*$/, '') === label && row[1] === size(bytes) && row[2] === blocks.toLocaleString('en-US'));
        for (const row of wanted) assert.ok(same(row), `${row.label}: ${JSON.stringify(shown)}`);
    });
});

test('the table is sorted by any of its columns, and by any group', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        for (const by of ['site', 'category', 'module']) {
            const groups = page.locator('select[aria-label="Groups"]');
            if ((await groups.locator(`option[value="${by}"]`).count()) === 0) continue;
            await groups.selectOption(by);
            await settled(page);
            const first = await rows(page);
            const counts = (all: string[][]) => all.map((row) => Number(row[3].replaceAll(',', '')));
            await page.click('#panel-table thead >> text=blocks');
            await settled(page);
            assert.equal(await page.getAttribute('#panel-table th:has-text("blocks")', 'aria-sort'), 'descending');
            const sorted = await rows(page);
            assert.deepEqual(counts(sorted), counts(first).sort((a, b) => b - a), by);
            await page.click('#panel-table thead >> text=blocks');
            await settled(page);
            assert.deepEqual(await rows(page), first, by);
        }
    });
});

test('segments and blocks are shown at any event, with the sums of memviz fragmentation', onlyChromium('downloads'), async () => {
    interface Fragmented {
        devices: { reserved_bytes: number; segment_count: number }[];
    }
    for (const entry of [500, 2000, 8000]) {
        const [{ reserved_bytes, segment_count }] = answer<Fragmented>('fragmentation', GPT, '--at', `entry:${entry}`).devices;
        // High enough for all segments at once.
        const options = { viewport: { width: 1280, height: 6000 } };
        const look = async (page: Page) => {
            await ready(page);
            const [download] = await Promise.all([page.waitForEvent('download'), page.click('#actions >> text=SVG')]);
            const svg = readFileSync(await download.path()).toString();
            assert.equal(svg.match(/>0x[0-9a-f]+</g)?.length, segment_count);
            const heads = [...svg.matchAll(/>[^<]*: ([\d,]+) segments?, ([\d.]+) ([KMG]iB)</g)];
            const count = heads.reduce((sum, [, segments]) => sum + Number(segments.replaceAll(',', '')), 0);
            const units: Record<string, number> = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
            const sum = heads.reduce((total, [, , bytes, unit]) => total + Number(bytes) * units[unit], 0);
            assert.equal(count, segment_count);
            assert.ok(Math.abs(sum - reserved_bytes) < 0.01 * 2 ** 30 * heads.length, `${sum}, ${reserved_bytes}`);
        };
        await inPage(pageFile(GPT), `#tab=segments&at=${entry + 1}`, look, options);
    }
});

test('buttons go from event to event, and play goes on by itself until it is stopped', async () => {
    await inPage(pageFile(GPT), '#tab=events&at=100', async (page) => {
        await ready(page);
        const steps = page.locator('.events [aria-label="Steps"] button');
        assert.equal(await cursor(page), 99);
        await steps.nth(2).click();
        await rested(page);
        assert.equal(await cursor(page), 100);
        await steps.nth(0).click();
        await steps.nth(0).click();
        await rested(page);
        assert.equal(await cursor(page), 98);
        // Only among the listed events: each next one is an allocation.
        await page.selectOption('.events select[aria-label="Actions"]', 'allocations');
        await rested(page);
        const before = await cursor(page);
        await steps.nth(1).click();
        assert.equal(await steps.nth(1).getAttribute('title'), 'Stop');
        await page.waitForFunction((from) => {
            const where = document.querySelector('#where .texts')?.textContent ?? '';
            return Number(/entry ([\d,]+) of/.exec(where)?.[1].replaceAll(',', '')) > from + 5;
        }, before);
        await steps.nth(1).click();
        await rested(page);
        assert.match((await steps.nth(1).getAttribute('title')) ?? '', /^Play/);
        const stopped = await cursor(page);
        const chosen = page.locator('.events .line[aria-selected="true"]');
        assert.equal(await chosen.getAttribute('data-entry'), String(stopped));
        assert.equal(await chosen.locator('.action').textContent(), 'alloc');
        // It stops at the end of the list.
        await page.focus('.events .list');
        await page.keyboard.press('End');
        await rested(page);
        await steps.nth(1).click();
        await page.waitForFunction(() => /^Play/.test(document.querySelectorAll<HTMLElement>('.events [aria-label="Steps"] button')[1].title));
    });
});

test('the list of events shows those that the search finds', async () => {
    await inPage(pageFile(GPT), '#tab=events&listed=allocations&search=softmax', async (page) => {
        await ready(page);
        const count = async (of: string) => (await page.textContent(of))!.split(' ')[0];
        assert.equal(await count('.events output'), await count('#found'));
        const listed = await page.$$eval('.events .line', (lines) => lines.map((line) => line.querySelector('.action')?.textContent));
        assert.ok(listed.length > 10 && listed.every((action) => action === 'alloc'), String(listed));
        await page.focus('.events .list');
        for (const key of ['Home', 'ArrowDown', 'End']) {
            await page.keyboard.press(key);
            await rested(page);
            assert.match((await page.textContent('#details')) ?? '', /softmax/);
        }
    });
});

test('a click keeps the stack under the pointer, in blocks, segments and events', async () => {
    for (const tab of ['blocks', 'segments', 'events'] as const) {
        // An entry of the program's own thread: autograd's has no Python stacks.
        await inPage(pageFile(GPT), `#tab=${tab}&at=2935`, async (page) => {
            await ready(page);
            // A block of the largest band, the first block of the first segment, and the entry at the cursor.
            const [of, across, down] = {
                blocks: ['#panel-blocks canvas', 400, 200],
                segments: ['#panel-segments canvas', 214, 34],
                events: ['.events [aria-selected="true"] .site', 9, 9],
            }[tab] as [string, number, number];
            const box = await page.locator(of).boundingBox();
            const [x, y] = [box!.x + across, box!.y + down];
            await page.mouse.move(x, y);
            await page.waitForFunction(() => /:\d+ \S/.test([...document.querySelectorAll('.tip:not([hidden]) div')].slice(1).at(-1)?.textContent ?? ''));
            const said = await page.$$eval('.tip div', (lines) => lines.map((line) => line.textContent ?? ''));
            await page.mouse.click(x, y);
            await rested(page);
            const kept = await page.$$eval('#details details ol.stack li, #details > ol.stack li', (frames) => {
                // Long names have places where they may break between their parts.
                const texts = (frame: Element) => [...frame.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
                return frames.map((frame) => texts(frame).map((node) => node.textContent).join(''));
            });
            assert.ok(kept.length > 1, tab);
            const last = kept.length > 16 ? said.slice(-17, -1) : said.slice(-kept.length);
            assert.deepEqual(last, kept.slice(0, 16), `${tab}: ${said}`);
        });
    }
});

test('the flame graph of an instant has the bytes of memviz peak', async () => {
    const { attribution } = answer<Peak>('peak', GPT).devices[0];
    const there = answer<Peak>('peak', GPT, '--at', 'entry:499').devices[0].attribution;
    for (const [link, bytes] of [
        ['#tab=flame', attribution.total_bytes],
        ['#tab=flame&at=500', there.total_bytes],
    ] as const) {
        await inPage(pageFile(GPT), link, async (page) => {
            await ready(page);
            const box = await page.locator('#panel-flame canvas').boundingBox();
            await page.mouse.click(box!.x + 0.5 * box!.width, box!.y + 12);
            await settled(page);
            const facts = (await page.textContent('#details dl')) ?? '';
            assert.ok(facts.includes(`exactly${bytes.toLocaleString('en-US')} bytes`), `${link}: ${facts}`);
        });
    }
});
