/** Figures of an instant, of a group and of a pair of recordings belong to exactly these. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import * as support from './support.ts';
import { answer, drop, exact, fixture, inPage, onlyChromium, pageFile, ready, rested, settled } from './support.ts';

interface Peak {
    devices: {
        peak: { allocated_bytes: number; reserved_bytes: number; annotations: string[] };
        attribution: { rows: { label: string; bytes: number }[] };
    }[];
}

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const CHECKPOINTED = fixture('snapshots/gpt_train_ckpt/snapshot.pickle.gz');
const CPU = fixture('traces/profiler_traces/cpu.trace.json.gz');
const TRACE = fixture('traces/profiler_traces/fake_cuda_modules.trace.json.gz');

after(support.close);

/** Bytes as the page writes them. */
function bytes(count: number): string {
    const power = count < 1024 ** 2 ? 1 : count < 1024 ** 3 ? 2 : 3;
    return `${(count / 1024 ** power).toFixed(2)} ${['', 'KiB', 'MiB', 'GiB'][power]}`;
}

async function hover(page: Page, across: number): Promise<string> {
    const box = await page.locator('#timelines canvas').first().boundingBox();
    await page.mouse.move(box!.x + across * box!.width, box!.y + 0.6 * box!.height);
    await page.waitForSelector('.tip:not([hidden])');
    return (await page.textContent('.tip')) ?? '';
}

async function facts(page: Page): Promise<Map<string, string>> {
    await settled(page);
    const pairs = await page.$$eval('#details dl dt', (all) =>
        all.map((key) => [key.textContent ?? '', key.nextElementSibling?.textContent ?? '']),
    );
    return new Map(pairs as [string, string][]);
}

/** How many event listeners the window has. */
async function listeners(page: Page): Promise<number> {
    const session = await page.context().newCDPSession(page);
    const { result } = await session.send('Runtime.evaluate', { expression: 'window' });
    return (await session.send('DOMDebugger.getEventListeners', { objectId: result.objectId! })).listeners.length;
}

test('the line at an instant says what memviz peak --at says', async () => {
    for (const [name, instants] of [
        ['gpt_train', [125, 2411]],
        ['annotated', [10]],
        ['empty_cache', [40]],
    ] as const) {
        const recording = fixture(`snapshots/${name}/snapshot.pickle.gz`);
        const page = pageFile(recording);
        for (const instant of instants) {
            const { peak } = answer<Peak>('peak', recording, '--at', `entry:${instant - 1}`).devices[0];
            await inPage(page, `#at=${instant}`, async (page) => {
                await ready(page);
                const line = (await page.textContent('#where .texts')) ?? '';
                assert.ok(line.includes(`${bytes(peak.allocated_bytes)} allocated`), `${name} at ${instant}: ${line}`);
                assert.ok(line.includes(`${bytes(peak.reserved_bytes)} reserved`), `${name} at ${instant}: ${line}`);
                const open = / in (.*?) · [\d.]+ /.exec(line)?.[1] ?? '';
                assert.equal(open, peak.annotations.join(' / '), `${name} at ${instant}`);
            });
        }
    }
});

test('an uncertain peak does not make the kept instants uncertain', async () => {
    await inPage(pageFile(fixture('snapshots/no_history/snapshot.pickle.gz')), '', async (page) => {
        await ready(page);
        assert.match((await page.textContent('#figures')) ?? '', /allocated at the dump921\.08 MiB.*the peak before it is unknown/);
        assert.match((await page.textContent('#where')) ?? '', /the dump .*· 921\.08 MiB allocated · 4\.28 GiB reserved/);
        await page.keyboard.press(']');
        assert.equal(await page.textContent('#alarm'), 'no history was recorded');
    });
    await inPage(pageFile(CPU), '#metric=requested', async (page) => {
        await ready(page);
        assert.match((await page.textContent('#where')) ?? '', /· perhaps [\d.]+ MiB requested/);
    });
});

test('the pointer shows the reserved memory of the instant that it names, where that was recorded', async () => {
    const recording = fixture('snapshots/empty_cache/snapshot.pickle.gz');
    await inPage(pageFile(recording), '', async (page) => {
        await ready(page);
        for (const across of [0.2, 0.4, 0.6, 0.8]) {
            const tip = await hover(page, across);
            const entry = /entry ([\d,]+) of/.exec(tip)?.[1].replaceAll(',', '');
            const { peak } = answer<Peak>('peak', recording, '--at', `entry:${entry}`).devices[0];
            assert.ok(tip.includes(`${bytes(peak.reserved_bytes)} reserved`), tip);
        }
    });
    await inPage(pageFile(TRACE), '#device=0', async (page) => {
        await ready(page);
        assert.match(await hover(page, 0.5), / reserved/);
        assert.match((await page.textContent('#where')) ?? '', / reserved/);
    });
    await inPage(pageFile(CPU), '', async (page) => {
        await ready(page);
        assert.doesNotMatch(await hover(page, 0.5), /reserved/);
        assert.doesNotMatch((await page.textContent('#where')) ?? '', /reserved/);
    });
});

test('the details of a group are those of its row or band', async () => {
    const recording = pageFile(GPT);
    const [row] = answer<Peak>('peak', GPT).devices[0].attribution.rows;
    // The link selects a band of a site, while the table groups by function.
    await inPage(recording, `#by=function&band=${encodeURIComponent(row.label)}`, async (page) => {
        await ready(page);
        assert.equal((await facts(page)).get('exactly'), `${row.bytes.toLocaleString('en-US')} bytes`);
    });
    // The mark may be after the cursor.
    await inPage(recording, `#at=100&mark=2940&label=${encodeURIComponent(row.label)}`, async (page) => {
        await ready(page);
        const shown = await facts(page);
        assert.ok(shown.get('at entry 2,939')?.startsWith(bytes(row.bytes)), [...shown].join('; '));
        assert.ok(shown.has('at entry 99'));
    });
});

test('two recordings are told apart, their rows sum up, and no figure of one is shown for the other', async () => {
    await inPage(pageFile(GPT), '#by=stack&at=3000&mark=20&from=2000&to=4000&allocation=1500', async (page) => {
        await ready(page);
        await drop(page, CHECKPOINTED);
        await ready(page, 2);
        assert.ok(await page.isHidden('#alarm'), (await page.textContent('#alarm')) ?? '');
        const [a, b] = [GPT, CHECKPOINTED].map(
            (file) => answer<Peak>('peak', file).devices[0].peak.allocated_bytes,
        );
        // Short labels of stacks repeat.
        const changes = await page.$$eval('#panel-table tbody tr', (rows) => rows.map((row) => Number((row as HTMLElement).dataset.bytes)));
        assert.equal(
            changes.reduce((sum, change) => sum + change, 0),
            b - a,
        );
        await page.click('#panel-table tbody tr');
        assert.deepEqual([...(await facts(page)).keys()].slice(0, 3), ['A', 'B', 'change']);
        // A file that cannot be read changes nothing.
        const verdict = await page.textContent('#verdict');
        await drop(page, fixture('malformed/random-bytes.bin'));
        await page.waitForSelector('#alarm:not([hidden])');
        assert.equal(await page.textContent('#verdict'), verdict);
        // CPU memory is not memory of a device: no difference is shown.
        await drop(page, CPU);
        await ready(page, 3);
        assert.equal(await page.textContent('#verdict'), 'A is Device 0, B is CPU memory');
        assert.deepEqual(await page.$$eval('#panel-table th', (all) => all.slice(1, 3).map((each) => each.textContent)), [
            'A, Device 0',
            'B, CPU memory',
        ]);
        assert.equal(await page.locator('select[aria-label="Device"] option').count(), 2);
    });
});

test('two recordings are compared at the same step, and as far into it', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        await drop(page, CHECKPOINTED);
        await ready(page, 2);
        const lines = () => page.$$eval('#where .texts span', (all) => all.slice(0, 2).map((each) => each.textContent ?? ''));
        const steps = async () => (await lines()).map((line) => / in (step_\d+)/.exec(line)?.[1]);
        await page.focus('#timelines > div:nth-child(1) canvas');
        for (const wanted of ['step_2', 'step_3']) {
            while ((await steps())[0] !== wanted) {
                await page.keyboard.press(']');
                await rested(page);
            }
            assert.notEqual((await steps())[1], wanted);
            await page.focus('#where >> text=same step');
            await page.keyboard.press('Enter');
            await rested(page);
            assert.deepEqual(await steps(), [wanted, wanted]);
            const changes = [...(await exact(page)).values()].reduce((sum, change) => sum + change, 0);
            const [a, b] = (await lines()).map((line) => Number(/entry ([\d,]+) of/.exec(line)![1].replaceAll(',', '')));
            const held = [GPT, CHECKPOINTED].map((file, at) => answer<Peak>('peak', file, '--at', `entry:${[a, b][at]}`).devices[0].peak.allocated_bytes);
            assert.equal(changes, held[1] - held[0]);
        }
    });
});

test('the address describes the recording that the page contains, and the page follows it', onlyChromium('listeners of the window'), async () => {
    const page = pageFile(GPT);
    await inPage(page, '#at=3000&allocation=1500', async (page) => {
        await ready(page);
        await page.evaluate(() => {
            location.hash = '#at=500&by=category&tab=flame';
        });
        await page.waitForFunction(() => document.getElementById('where')?.textContent?.includes('entry 499 of'));
        assert.equal(await page.inputValue('select[aria-label="Groups"]'), 'category');
        assert.equal(await page.getAttribute('#tab-flame', 'aria-selected'), 'true');
        assert.equal(await page.locator('#details dl').count(), 0);
        const before = await listeners(page);
        const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('text=Open…')]);
        await chooser.setFiles(fixture('snapshots/tiny/snapshot.pickle.gz'));
        await ready(page, 2);
        await rested(page);
        assert.ok(await page.isHidden('#alarm'));
        assert.equal(await page.evaluate(() => location.hash), '');
        // No listener of the previous recording remains. A recording that was opened does not follow the address.
        assert.ok((await listeners(page)) <= before);
    });
});

test('the focus stays where the reader is', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        const focused = () => page.evaluate(() => document.activeElement?.textContent ?? '');
        await page.focus('#panel-table tbody tr:nth-child(2)');
        const row = await focused();
        await page.keyboard.press(' ');
        await page.waitForSelector('#panel-table tr[aria-selected="true"]');
        assert.equal(await focused(), row);
        await page.keyboard.press('Escape');
        await page.waitForSelector('#panel-table tr[aria-selected="true"]', { state: 'detached' });
        assert.equal(await focused(), row);
        await page.focus('#where >> text=compare with…');
        await page.keyboard.press('Enter');
        await settled(page);
        assert.equal(await focused(), 'end the range');
    });
});

test('an allocation is reached without a pointer, and the other recording with the focus', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        for (const tab of ['blocks', 'segments']) {
            await page.click(`#tab-${tab}`);
            await settled(page);
            await page.focus(`#panel-${tab} canvas`);
            await page.keyboard.press('ArrowUp');
            const first = (await facts(page)).get('id');
            await page.keyboard.press('ArrowUp');
            await settled(page);
            assert.notEqual((await facts(page)).get('id'), first);
            const place = () => page.evaluate(() => document.activeElement?.closest('canvas, #details')?.tagName);
            assert.equal(await place(), 'CANVAS');
            await page.focus('#details button');
            await page.keyboard.press('Escape');
            await settled(page);
            assert.equal(await page.locator('#details dl').count(), 0);
            assert.equal(await place(), 'DIV');
        }
        await page.click('#tab-flame');
        await settled(page);
        await page.focus('#panel-flame canvas');
        for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
        assert.ok((await facts(page)).has('allocated by this frame itself'));
        await drop(page, CHECKPOINTED);
        await ready(page, 2);
        const lines = () => page.$$eval('#where .texts span', (all) => all.map((each) => each.textContent));
        const before = await lines();
        await page.focus('#timelines > div:nth-child(2) canvas');
        await page.keyboard.press('Shift+ArrowLeft');
        await settled(page);
        const after = await lines();
        assert.deepEqual([after[0] === before[0], after[1] === before[1]], [true, false]);
    });
});

test('a narrow window shows the verdict and all buttons', async () => {
    const viewport = { width: 420, height: 800 };
    await inPage(
        pageFile(GPT),
        '',
        async (page) => {
            await ready(page);
            const boxes = await page.$$eval('#verdict, #actions button', (all) =>
                all.map((each) => each.getBoundingClientRect()).map(({ left, right }) => [left, right]),
            );
            assert.ok(boxes.length > 4 && boxes.every(([left, right]) => left >= 0 && right <= 420), String(boxes));
            assert.ok(boxes.some(([left, right]) => right - left > 300));
            // The views below the timeline have room, and nothing is wider than the window.
            const panels = await page.locator('#panels').boundingBox();
            assert.ok(panels && panels.height > 400, JSON.stringify(panels));
            assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 420);
        },
        { viewport },
    );
});
