import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, drop, exact, fixture, inPage, onlyChromium, pageFile, picture, ready, rested, settled, site } from './support.ts';

interface Peak {
    devices: {
        device: number;
        maxima: Record<string, number>;
        peak: { entry: number };
        attribution: { total_bytes: number; rows: { label: string; bytes: number; blocks: number }[] };
    }[];
}

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const OOM = fixture('snapshots/oom/snapshot.pickle.gz');
const MULTI = fixture('snapshots/multi_gpu/snapshot.pickle.gz');
const pages = new Map<string, string>();

/** The page of a recording, made once. */
function of(recording: string): string {
    const known = pages.get(recording) ?? pageFile(recording);
    pages.set(recording, known);
    return known;
}

after(support.close);

/** The middle of the timeline, or a part of it. */
async function place(page: Page, across = 0.5, down = 0.5, host = '#timelines'): Promise<[number, number]> {
    const box = await page.locator(`${host} canvas`).first().boundingBox();
    assert.ok(box);
    return [box.x + across * box.width, box.y + down * box.height];
}

async function link(page: Page): Promise<URLSearchParams> {
    await rested(page);
    return new URLSearchParams(new URL(page.url()).hash.slice(1));
}

test('the totals of each device are those of memviz peak', async () => {
    for (const recording of [GPT, MULTI, fixture('traces/profiler_traces/fake_cuda_modules.trace.json.gz')]) {
        const { devices } = answer<Peak>('peak', recording);
        await inPage(of(recording), '', async (page) => {
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
    await inPage(of(GPT), '', async (page) => {
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

test('wheel, drag and keys zoom and move', async () => {
    await inPage(of(GPT), '', async (page) => {
        await ready(page);
        const span = async () => {
            const state = await link(page);
            return [Number(state.get('from')), Number(state.get('to'))];
        };
        await page.mouse.move(...(await place(page, 0.5, 0.4)));
        await page.mouse.wheel(0, -400);
        const [from, to] = await span();
        assert.ok(from > 0 && to > from && to - from < 9107 / 2, `${from} to ${to}`);
        await page.mouse.down();
        await page.mouse.move(...(await place(page, 0.3, 0.4)), { steps: 5 });
        await page.mouse.up();
        const moved = await span();
        assert.ok(moved[0] > from && Math.abs(moved[1] - moved[0] - (to - from)) < 1e-6, String(moved));
        await page.keyboard.press('0');
        assert.deepEqual([...(await link(page)).keys()], []);
        await page.keyboard.press('+');
        const zoomed = await span();
        assert.ok(zoomed[1] - zoomed[0] < 9107);
        await page.keyboard.press('0');
        // The first row of annotations: the step in the middle of the run.
        const box = await page.locator('#timelines canvas').boundingBox();
        await page.mouse.click(box!.x + 0.5 * box!.width, box!.y + box!.height - 40);
        const step = await span();
        assert.ok(step[0] > 1000 && step[1] < 8000 && step[1] - step[0] > 1000, `a step: ${step}`);
        await page.keyboard.press('8');
        assert.equal((await link(page)).get('tab'), 'findings');
    });
});

test('the pointer says what it is on, and a click where it comes from', async () => {
    await inPage(of(GPT), '#tab=blocks', async (page) => {
        await ready(page);
        await page.mouse.move(...(await place(page, 0.5, 0.7)));
        await page.waitForSelector('.tip:not([hidden]) .strong');
        const tip = await page.textContent('.tip');
        assert.match(tip ?? '', /\d (KiB|MiB|GiB) allocated, .* reserved.*entry [\d,]+ of 9,107/s);
        await page.mouse.click(...(await place(page, 0.5, 0.8, '#panel-blocks')));
        await settled(page);
        const site = await page.textContent('#details h2');
        const own = await page.$$eval('#details li.own', (frames) => frames.map((frame) => frame.textContent));
        assert.ok(site?.includes(own[0] ?? 'none'), `${site}: ${own[0]}`);
        const facts = await page.textContent('#details dl');
        assert.match(facts ?? '', /requested.*handed out.*category.*because.*allocated.*entry/s);
        assert.match((await link(page)).get('allocation') ?? '', /^\d+$/);
    });
});

interface Info {
    devices: { entries: number; actions: Record<string, number> }[];
}

test('the list of events has all entries, and goes where the cursor is', async () => {
    const [{ entries, actions }] = answer<Info>('info', OOM).devices;
    const shown = (page: Page) =>
        page.$$eval('.events .line', (rows) =>
            rows.map((row) => ({
                entry: Number((row as HTMLElement).dataset.entry),
                action: row.querySelector('.action')!.textContent,
                isChosen: row.getAttribute('aria-selected') === 'true',
            })),
        );
    const count = async (page: Page) => Number((await page.textContent('.events output'))!.split(' ')[0].replaceAll(',', ''));
    await inPage(of(OOM), '#tab=events', async (page) => {
        await ready(page);
        assert.equal(await count(page), entries);
        for (const [choice, names] of [
            ['allocations', ['alloc']],
            ['frees', ['free_requested', 'free_completed']],
            ['failed', ['oom']],
        ] as const) {
            await page.selectOption('.events select[aria-label="Actions"]', choice);
            await settled(page);
            assert.equal(await count(page), names.reduce((sum, name) => sum + (actions[name] ?? 0), 0));
            assert.ok((await shown(page)).every(({ action }) => (names as readonly (string | null)[]).includes(action)));
        }
        // The row of the only failed request, and where it is.
        await page.click('.events .line');
        await settled(page);
        const [failed] = await shown(page);
        assert.ok(failed.isChosen);
        const where = (await page.textContent('#where')) ?? '';
        assert.ok(where.includes(`entry ${failed.entry.toLocaleString('en-US')} of`), where);
        assert.equal((await link(page)).get('listed'), 'failed');
        assert.match(await page.textContent('#details h2').then(String), /^oom, entry/);
        await page.selectOption('.events select[aria-label="Actions"]', 'all');
        await settled(page);
        const chosen = async () => (await shown(page)).filter(({ isChosen }) => isChosen).map(({ entry }) => entry);
        const isSeen = () =>
            page.evaluate(() => {
                const list = document.querySelector('.events .list')!.getBoundingClientRect();
                const row = document.querySelector('.events [aria-selected="true"]')!.getBoundingClientRect();
                return row.top >= list.top - 1 && row.bottom <= list.bottom + 1;
            });
        assert.deepEqual(await chosen(), [failed.entry]);
        assert.ok(await isSeen());
        await page.focus('.events .list');
        await page.keyboard.press('ArrowUp');
        await settled(page);
        assert.deepEqual(await chosen(), [failed.entry - 1]);
        await page.keyboard.press('Home');
        await settled(page);
        assert.deepEqual(await chosen(), [0]);
        assert.ok(await isSeen());
        // An entry that frees leads to the one that allocates, and back.
        await page.selectOption('.events select[aria-label="Actions"]', 'frees');
        await settled(page);
        const [{ entry: freed }] = await shown(page);
        // Rows are drawn again while a driver scrolls to one.
        await page.locator(`.events [data-entry="${freed}"] button`).dispatchEvent('click');
        await page.selectOption('.events select[aria-label="Actions"]', 'all');
        await settled(page);
        const allocated = (await shown(page)).find(({ isChosen }) => isChosen)!;
        assert.equal(allocated.action, 'alloc');
        await page.locator(`.events [data-entry="${allocated.entry}"] button`).dispatchEvent('click');
        await settled(page);
        assert.deepEqual(await chosen(), [freed]);
        await page.fill('.events input', '500 MiB');
        await settled(page);
        const large = await count(page);
        assert.ok(large > 0 && large < entries);
        assert.equal((await link(page)).get('least'), String(500 * 2 ** 20));
        // A link to what is listed lists the same.
        await page.reload();
        await ready(page);
        assert.equal(await count(page), large);
        assert.equal(await page.inputValue('.events input'), '500.00 MiB');
    });
});

test('a failed request stands at the end of the curve', async () => {
    await inPage(of(OOM), '', async (page) => {
        await ready(page);
        const { height, top } = await page.evaluate(() => {
            const canvas = document.querySelector<HTMLCanvasElement>('#timelines canvas')!;
            const { data, width, height } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
            const rows = new Set<number>();
            // Its fill lies on the ground, left of the line that goes from top to bottom.
            for (let at = 0; at < data.length; at += 4) {
                const [red, green, blue] = data.subarray(at, at + 3);
                const x = (at / 4) % width;
                if (x > width - 40 && red > 220 && green > 150 && green < 215 && Math.abs(green - blue) < 20) {
                    rows.add(Math.floor(at / 4 / width));
                }
            }
            return { height: rows.size / height, top: Math.min(...rows) };
        });
        assert.ok(height > 0.05 && height < 0.2 && top > 0, `${height}, ${top}`);
    });
});

test('the page opens at the failed request, which stands beside the free blocks in the segments', onlyChromium('downloads'), async () => {
    interface Oom {
        devices: {
            ooms: {
                requested_bytes: number;
                serving: { inactive_bytes: number; largest_usable_block_bytes: number; free_block_count: number };
            }[];
        }[];
    }
    const [{ requested_bytes, serving }] = answer<Oom>('oom', OOM).devices[0].ooms;
    await inPage(of(OOM), '#tab=segments', async (page) => {
        await ready(page);
        assert.match((await page.textContent('#where')) ?? '', /^at entry 6,362 of 6,363/);
        const [download] = await Promise.all([page.waitForEvent('download'), page.click('#actions >> text=SVG')]);
        const svg = readFileSync(await download.path()).toString();
        assert.ok(svg.includes(`The request that failed: ${size(requested_bytes)}`));
        const { inactive_bytes, largest_usable_block_bytes, free_block_count } = serving;
        const beside = `Beside it: ${size(inactive_bytes)} in ${free_block_count} free blocks of its pool and stream`;
        assert.ok(svg.includes(`${beside}, the largest that it may use ${size(largest_usable_block_bytes)}`), beside);
        // Rows with address and size, and the same packed.
        assert.match(svg, />0x[0-9a-f]+</);
        await page.click('.segments >> text=packed');
        await settled(page);
        assert.equal((await link(page)).get('packed'), '1');
    });
});

test('a search is shown everywhere, and a bad one says so', async () => {
    await inPage(of(GPT), '', async (page) => {
        await ready(page);
        await page.keyboard.press('/');
        await page.keyboard.type('softmax');
        await page.waitForFunction(() => /^[\d,]+ found$/.test(document.getElementById('found')?.textContent ?? ''));
        await page.waitForSelector('#panel-table tr.found');
        const found = await page.$$eval('#panel-table tr.found', (all) => all.length);
        const all = (await exact(page)).size;
        assert.ok(found > 0 && found < all, `${found} of ${all}`);
        // A flag that browsers' own expressions do not have.
        await page.fill('#search', '(?i)SOFTMAX');
        await page.waitForFunction(
            (before) => document.querySelectorAll('#panel-table tr.found').length === before,
            found,
        );
        await page.fill('#search', 'soft(');
        await page.waitForSelector('#found.alarm');
        assert.equal(
            `memviz: ${await page.textContent('#found')}`,
            support.complaint('peak', GPT, '--include', 'soft('),
        );
        await page.waitForFunction(() => document.querySelectorAll('#panel-table tr.found').length === 0);
    });
});

test('a group is shown with its stack, the user\'s own frames first', async () => {
    await inPage(of(GPT), '#by=stack', async (page) => {
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

test('reserved memory is that of memviz peak, by who asked for its segments', async () => {
    await inPage(of(GPT), '#metric=reserved', async (page) => {
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
    await inPage(of(GPT), '#metric=reserved&tab=blocks', async (page) => {
        await ready(page);
        const [{ maxima }] = answer<Peak>('peak', GPT).devices;
        // The lowest band is the oldest segment: made for the first request.
        const [x, y] = await place(page, 0.9, 0.9, '#panel-blocks');
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
        // From the keyboard the next one above it, which is younger.
        await page.focus('#panel-blocks canvas');
        await page.keyboard.press('ArrowUp');
        await settled(page);
        assert.ok(Number((await link(page)).get('entry')) > entry);
    });
});

test('a page of a part says so, and has the peak of that part', async () => {
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

test('the terms of the libraries are in the page', async () => {
    await inPage(pageFile(null), '', async (page) => {
        await page.click('#actions >> text=?');
        await page.click('#help summary');
        const terms = await page.textContent('#help pre');
        assert.match(terms ?? '', /serde_json [\d.]+ \(MIT OR Apache-2\.0\)/);
        assert.match(terms ?? '', /Permission is hereby granted/);
    });
});

test('two instants show what grew', async () => {
    await inPage(of(GPT), '#at=2940&mark=100', async (page) => {
        await ready(page);
        const at = (entry: number) => answer<Peak>('peak', GPT, '--at', `entry:${entry}`).devices[0].attribution;
        const [before, after] = [at(99), at(2939)];
        const rows = await exact(page);
        const change = [...rows.values()].reduce((sum, bytes) => sum + bytes, 0);
        assert.equal(change, after.total_bytes - before.total_bytes);
        for (const row of after.rows) {
            const was = before.rows.find((each) => each.label === row.label)?.bytes ?? 0;
            assert.equal(rows.get(row.label), row.bytes - was, row.label);
        }
    });
});

interface Held {
    total_bytes: number;
    rows: { label: string; bytes: number }[];
}

test('a range that is dragged says what was allocated, freed and survived in it, and sums up', async () => {
    await inPage(of(GPT), '', async (page) => {
        await ready(page);
        await page.keyboard.down('Shift');
        await page.mouse.move(...(await place(page, 0.4, 0.4)));
        await page.mouse.down();
        await page.mouse.move(...(await place(page, 0.6, 0.4)), { steps: 5 });
        await page.mouse.up();
        await page.keyboard.up('Shift');
        await settled(page);
        const state = await link(page);
        const [from, to] = [Number(state.get('mark')), Number(state.get('at'))];
        assert.ok(from > 2000 && to > from + 1000 && to < 7000, `${from} to ${to}`);
        assert.equal(state.get('from'), null, 'what is seen stays');
        const at = (instant: number) =>
            answer<{ devices: { attribution: Held }[] }>('peak', GPT, '--at', `entry:${instant - 1}`, '--device', '0')
                .devices[0].attribution;
        const [start, end] = [at(from), at(to)];
        const heads = await page.$$eval('#panel-table thead th', (cells) => cells.map((cell) => cell.textContent));
        assert.deepEqual(heads.slice(2, 4), ['allocated', 'freed']);
        assert.deepEqual(heads.slice(5, 7), ['change', 'survived']);
        // The exact bytes of each row, by column.
        const cells = await page.$$eval('#panel-table tbody tr', (rows) =>
            rows.map((row) => ({
                label: (row as HTMLElement).dataset.label ?? '',
                bytes: [...row.children].slice(1, 7).map((cell) => {
                    return Number((cell as HTMLElement).title.replace(/[, a-z]/g, ''));
                }),
            })),
        );
        const held = (rows: Held['rows'], label: string) => rows.find((row) => row.label === label)?.bytes ?? 0;
        for (const { label, bytes } of cells) {
            const [was, allocated, freed, is, change, survived] = bytes;
            assert.equal(was + allocated - freed, is, label);
            assert.equal(is - was, change, label);
            assert.ok(survived <= allocated && survived <= is, label);
            assert.deepEqual([was, is], [held(start.rows, label), held(end.rows, label)], label);
        }
        const sum = (column: number) => cells.reduce((total, { bytes }) => total + bytes[column], 0);
        assert.deepEqual([sum(0), sum(3)], [start.total_bytes, end.total_bytes]);
        const where = (await page.textContent('#where')) ?? '';
        assert.match(where, /^range entry [\d,]+ to entry [\d,]+ · [\d,]+ entries in .* \+ .* allocated − .* freed = /);
        // The largest of a column comes first where that is asked for.
        await page.click('#panel-table thead >> text=allocated');
        await settled(page);
        const first = cells.reduce((most, row) => (row.bytes[1] > most.bytes[1] ? row : most));
        assert.equal(await page.getAttribute('#panel-table tbody tr', 'data-label'), first.label);
        // The flame graph is of the same bytes.
        await page.click('#tab-flame');
        for (const [button, column] of [
            ['allocated in it', 1],
            ['freed in it', 2],
            ['survived', 5],
        ] as const) {
            await page.click(`#panel-flame .tools >> text=${button}`);
            await settled(page);
            const canvas = page.locator('#panel-flame canvas');
            await canvas.focus();
            await canvas.press('Enter');
            await page.mouse.click(...(await place(page, 0.5, 0, '#panel-flame').then(([x, y]) => [x, y + 12] as const)));
            await settled(page);
            const facts = (await page.textContent('#details dl')) ?? '';
            assert.ok(facts.includes(`exactly${sum(column).toLocaleString('en-US')} bytes`), `${button}: ${facts}`);
        }
        assert.equal((await link(page)).get('flame'), 'survived');
        await page.keyboard.press('m');
        await settled(page);
        assert.equal(await page.locator('#panel-flame .tools').isHidden(), true);
        assert.equal((await link(page)).get('mark'), null);
        // Along the axis it takes no shift.
        const box = await page.locator('#timelines canvas').boundingBox();
        await page.mouse.move(box!.x + 300, box!.y + box!.height - 60);
        await page.mouse.down();
        await page.mouse.move(box!.x + 500, box!.y + box!.height - 60, { steps: 3 });
        await page.mouse.up();
        assert.notEqual((await link(page)).get('mark'), null);
    });
});

test('a second file is compared, as memviz diff does', async () => {
    await inPage(of(GPT), '', async (page) => {
        await ready(page);
        await drop(page, OOM);
        await page.waitForFunction(() => document.querySelectorAll('#timelines canvas').length === 2);
        await ready(page, 2);
        interface Diff {
            devices: { rows: { label: string; delta_bytes: number }[] }[];
        }
        const wanted = answer<Diff>('diff', GPT, OOM).devices[0].rows;
        const rows = await exact(page);
        for (const row of wanted) {
            if (row.label !== '(other)') assert.equal(rows.get(row.label) ?? 0, row.delta_bytes, row.label);
        }
        assert.match((await page.textContent('#verdict')) ?? '', /B is .* higher/);
        for (const tab of ['blocks', 'segments']) {
            await page.click(`#tab-${tab}`);
            await settled(page);
            assert.equal(await page.locator(`#panel-${tab} canvas`).count(), 2);
        }
    });
});

test('a function is shown with its callers and callees', async () => {
    await inPage(of(GPT), '#by=function', async (page) => {
        await ready(page);
        const { rows } = answer<Peak>('peak', GPT, '--by', 'function').devices[0].attribution;
        const bytes = (label: string) => rows.find((row) => row.label === label)?.bytes ?? 0;
        // In a flame graph, what backward allocates stands below the forward call that it goes back to.
        const held = bytes('minigpt.py hidden') + bytes('backward of minigpt.py hidden');
        assert.ok(held > 0);
        await page.click('#panel-table tr[data-label="minigpt.py hidden"]');
        await page.click('#details >> text=Callers and callees');
        await settled(page);
        assert.equal((await link(page)).get('around'), 'minigpt.py hidden');
        assert.match((await page.textContent('#panel-flame .tools')) ?? '', /minigpt\.py hidden: callers above, callees below/);
        await page.focus('#panel-flame canvas');
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await settled(page);
        const facts = (await page.textContent('#details dl')) ?? '';
        assert.ok(facts.includes(`exactly${held.toLocaleString('en-US')} bytes`), `${held}: ${facts}`);
        // Another function that is seen is looked at in its turn.
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await settled(page);
        const next = (await link(page)).get('around');
        assert.notEqual(next, 'minigpt.py hidden');
        assert.ok((await page.textContent('#details h2')) === next, String(next));
        await page.click('#panel-flame .tools >> text=all functions');
        await settled(page);
        assert.equal((await link(page)).get('around'), null);
        assert.match(await root(page), /live/);
    });
});

test('cures are tried in the timeline, with the figures of memviz triage', async () => {
    interface Triage {
        devices: {
            advice: { change: string; saves_allocated_bytes: number | null; saves_reserved_bytes: number | null }[];
        }[];
    }
    const [{ advice }] = answer<Triage>('triage', GPT).devices;
    const [{ maxima }] = answer<Peak>('peak', GPT).devices;
    const played = advice.filter(({ saves_allocated_bytes }) => saves_allocated_bytes !== null);
    assert.ok(played.length > 1);
    await inPage(of(GPT), '#tab=findings', async (page) => {
        await ready(page);
        const boxes = page.locator('#panel-findings input[type="checkbox"]');
        assert.equal(await boxes.count(), played.length);
        const where = async () => (await page.textContent('#where .cured')) ?? '';
        const titles = await page.$$eval('#panel-findings .finding:has(input) .sentence', (all) =>
            all.map((each) => each.textContent ?? ''),
        );
        for (const [at, { change, saves_allocated_bytes, saves_reserved_bytes }] of played.entries()) {
            assert.ok(titles[at].startsWith(change), titles[at]);
            const picture = () => page.locator('#timelines canvas').first().screenshot();
            const recorded = await picture();
            await boxes.nth(at).check();
            await settled(page);
            assert.notDeepEqual(await picture(), recorded, change);
            const said = await where();
            for (const bytes of [
                maxima.allocated_bytes - saves_allocated_bytes!,
                maxima.reserved_bytes - saves_reserved_bytes!,
            ])
                assert.ok(said.includes(`${size(bytes)} instead of`), `${change}: ${said}`);
            await boxes.nth(at).uncheck();
            await settled(page);
            assert.equal(await page.locator('#where .cured').count(), 0);
            assert.deepEqual(await picture(), recorded, change);
        }
        await boxes.nth(0).check();
        await boxes.nth(1).check();
        await settled(page);
        assert.match(await where(), /^with 2 changes: peak /);
        assert.equal((await link(page)).get('cures'), '0,1');
        assert.equal(await page.locator('#details input:checked').count(), 2);
        await page.click('#where >> text=as recorded');
        await settled(page);
        assert.equal(await page.locator('input:checked').count(), 0);
        assert.equal((await link(page)).get('cures'), null);
    });
});

/** What the root of the flame graph says when it is clicked on. */
async function root(page: Page): Promise<string> {
    const [x, y] = await place(page, 0.5, 0, '#panel-flame');
    await page.mouse.click(x, y + 12);
    await settled(page);
    return (await page.textContent('#details dl')) ?? '';
}

/** Exact bytes, as the page writes them in brackets. */
function inBrackets(bytes: number): string {
    return `(${bytes.toLocaleString('en-US')}`;
}

test('the difference of two instants is a flame graph with the sums of the table', async () => {
    await inPage(of(GPT), '#at=2940&mark=100&tab=flame&flame=difference', async (page) => {
        await ready(page);
        const at = (entry: number) => answer<Peak>('peak', GPT, '--at', `entry:${entry}`).devices[0].attribution;
        const [before, after] = [at(99).total_bytes, at(2939).total_bytes];
        const facts = await root(page);
        for (const bytes of [before, after, after - before]) assert.ok(facts.includes(inBrackets(bytes)), facts);
        assert.match((await page.textContent('#panel-flame .tools')) ?? '', /red grew, blue shrank/);
    });
});

test('two recordings have a difference as a flame graph, and diverge where memviz diff says', async () => {
    await inPage(of(GPT), '', async (page) => {
        await ready(page);
        await drop(page, OOM);
        await page.waitForFunction(() => document.querySelectorAll('#timelines canvas').length === 2);
        await ready(page, 2);
        await page.click('#tab-flame');
        await settled(page);
        assert.equal(await page.locator('#panel-flame canvas:visible').count(), 1);
        const held = [GPT, OOM].map((file) => answer<Peak>('peak', file).devices[0].attribution.total_bytes);
        const facts = await root(page);
        for (const bytes of [...held, held[1] - held[0]]) assert.ok(facts.includes(inBrackets(bytes)), facts);
        await page.click('#panel-flame .tools >> text=side by side');
        await settled(page);
        assert.equal(await page.locator('#panel-flame canvas:visible').count(), 2);
        // The picture of the command says the same, with other names for both.
        const [, alike, base, other] = picture(GPT, OOM).match(/(the first \d+ requests are the same; then) base (.*?\)), new (.*?\))/)!;
        const where = (await page.textContent('#where')) ?? '';
        assert.ok(where.includes(`${alike} A ${base}, B ${other}`), `${alike} ${base}, ${other}: ${where}`);
        await page.click('#where >> text=first difference');
        await settled(page);
        const [, a, b] = where.match(/A requests .*?\(entry ([\d,]+)\), B requests .*?\(entry ([\d,]+)\)/) ?? [];
        const state = await link(page);
        assert.deepEqual([state.get('at'), state.get('at2')].map((at) => Number(at) - 1), [a, b].map(Number));
    });
});

test('a link shows the same again', async () => {
    let shown = '';
    await inPage(
        of(GPT),
        '#x=time&by=category&tab=flame&at=500&from=680000&to=700000&search=forward&fit=1',
        async (page) => {
            await ready(page);
            assert.equal(await page.getAttribute('#tab-flame', 'aria-selected'), 'true');
            assert.match((await page.textContent('#where')) ?? '', /entry 499 of 9,107/);
            assert.equal(await page.inputValue('#search'), 'forward');
            const state = await link(page);
            assert.deepEqual(
                [state.get('x'), state.get('from'), state.get('to'), state.get('by')],
                ['time', '680000', '700000', 'category'],
            );
            shown = page.url();
        },
    );
    await inPage(of(GPT), shown.slice(shown.indexOf('#')), async (page) => {
        await ready(page);
        await rested(page);
        assert.equal(page.url(), shown);
    });
});

test('dark is dark, on the page and in its pictures', onlyChromium('a color scheme'), async () => {
    const look = async (colorScheme: 'light' | 'dark') => {
        let seen: number[] = [];
        await inPage(
            of(GPT),
            '',
            async (page) => {
                await ready(page);
                seen = await page.evaluate(() => {
                    const ground = getComputedStyle(document.body).backgroundColor.match(/\d+/g)!.map(Number);
                    const canvas = document.querySelector<HTMLCanvasElement>('#timelines canvas')!;
                    return [
                        ...ground.slice(0, 3),
                        ...canvas.getContext('2d')!.getImageData(1, 1, 1, 1).data.slice(0, 3),
                    ];
                });
            },
            { colorScheme },
        );
        return seen;
    };
    assert.deepEqual(await look('light'), [255, 255, 255, 255, 255, 255]);
    assert.deepEqual(await look('dark'), [13, 17, 23, 13, 17, 23]);
});

test('what is seen is kept as SVG and PNG', onlyChromium('downloads'), async () => {
    await inPage(pageFile(OOM, path.basename(OOM)), '#tab=blocks&by=category', async (page) => {
        await ready(page);
        const keep = async (kind: string) => {
            const [download] = await Promise.all([
                page.waitForEvent('download'),
                page.click(`#actions >> text=${kind}`),
            ]);
            // The name of the recording, and what it is.
            assert.equal(download.suggestedFilename(), `${path.basename(OOM)}.${kind.toLowerCase()}`);
            return readFileSync(await download.path());
        };
        const svg = (await keep('SVG')).toString();
        const text = await page.evaluate((source) => {
            const parsed = new DOMParser().parseFromString(source, 'image/svg+xml');
            return parsed.querySelector('parsererror') ? 'not well formed' : (parsed.documentElement.textContent ?? '');
        }, svg);
        assert.match(text, /peak 6\.65 GiB/);
        assert.match(text, /OOM: 1000\.00 MiB/);
        assert.ok(!/<script|foreignObject|href/i.test(svg));
        assert.deepEqual([...(await keep('PNG')).subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    });
});

test('hostile names only show', async () => {
    const markup = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
    const names = [markup, 'a\u202egnp.exe', 'line\nbreak\u0007\u001b[31m', '"]}\'--></script>', 'x'.repeat(100_000)];
    const events: object[] = [];
    let total = 0;
    names.forEach((name, at) => {
        const ts = 1000 * (at + 1);
        const common = { pid: 1, tid: 1 };
        events.push({ ph: 'X', cat: 'user_annotation', name: `in ${name}`, ts, dur: 900, ...common });
        events.push({ ph: 'X', cat: 'cpu_op', name: `aten::${name}`, ts: ts + 10, dur: 500, ...common });
        total += 1 << 20;
        const args = {
            'Device Type': 1,
            'Device Id': 0,
            Addr: 4096 * (at + 1),
            Bytes: 1 << 20,
            'Total Allocated': total,
            'Total Reserved': 20 << 20,
        };
        events.push({ ph: 'i', cat: 'cpu_instant_event', s: 't', name: '[memory]', ts: ts + 100, ...common, args });
    });
    const recording = support.scratch('hostile.json', JSON.stringify({ schemaVersion: 1, traceEvents: events }));
    const file = pageFile(recording, `${markup}"><b>\u202e`);
    for (const by of ['operator', 'annotation', 'stack']) {
        for (const tab of ['table', 'blocks', 'flame', 'events', 'findings']) {
            await inPage(file, `#by=${by}&tab=${tab}`, async (page) => {
                await ready(page);
                assert.equal(
                    await page.textContent('[data-figure="peak-allocated"] .exact'),
                    (5 << 20).toLocaleString('en-US'),
                );
                assert.equal(await page.locator('img, b, #panels script').count(), 0);
                for (const across of [0.1, 0.3, 0.5, 0.7, 0.9])
                    await page.mouse.click(...(await place(page, across, 0.7)));
                await settled(page);
                assert.ok(
                    !/[\u0007\u001b\u202e]/.test(await page.innerText('body')),
                    'hidden characters are written out',
                );
                assert.ok((await page.innerText('body')).length < 20_000);
                const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
                assert.ok(wide <= 0, `the page is ${wide} pixels too wide`);
            });
        }
    }
});

test('a damaged recording shows what the command line says', async () => {
    for (const name of [
        'truncated-in-device-traces.pickle',
        'random-bytes.bin',
        'wrong-type-frames-int.pickle',
        'gzip-corrupt.pickle.gz',
        'not-a-snapshot-model.pickle',
    ]) {
        const recording = fixture(`malformed/${name}`);
        await inPage(pageFile(recording), '', async (page) => {
            await page.waitForSelector('#alarm:not([hidden])');
            assert.equal(await page.textContent('#alarm'), support.complaint('peak', recording));
        });
    }
});

test('a static site has an empty page and samples', async () => {
    const folder = site();
    await inPage(path.join(folder, 'index.html'), '', async (page) => {
        await page.waitForSelector('#welcome:not([hidden])');
        const links = page.locator('.samples a');
        const pages = await links.evaluateAll((all) => all.map((link) => link.getAttribute('href')));
        const written = readdirSync(folder).filter((name) => name.endsWith('.html') && name !== 'index.html');
        assert.deepEqual([...pages].sort(), written.sort());
        await links.first().click();
        await ready(page);
        assert.equal(await page.textContent('#file'), 'snapshot.pickle.gz');
        assert.ok(await page.isHidden('#welcome'));
    });
});

test('an empty page takes a file that is dropped', async () => {
    await inPage(pageFile(null), '', async (page) => {
        await page.waitForSelector('#welcome:not([hidden])');
        await drop(page, GPT);
        await ready(page);
        assert.equal(await page.textContent('[data-figure="peak-allocated"] .exact'), '4,453,794,816');
        assert.ok(await page.isHidden('#welcome'));
    });
});
