/** Trials in the page have the same results as the command line. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import { bytes as size, typedBytes } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, drop, fixture, inPage, link, pageFile, type Peak, ready, rested, settled } from './support.ts';

interface Simulated {
    devices: {
        runs: {
            finishes: boolean;
            fails_at_entry: number | null;
            max_allocated_bytes: number;
            max_reserved_bytes: number;
            trust: string;
        }[];
    }[];
}

interface Fitted {
    devices: {
        scaling: {
            largest: number | null;
            predictions: { value: number; finishes: boolean; max_allocated_bytes: number; max_reserved_bytes: number }[];
        };
    }[];
}

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const FOUR = fixture('fit/minigpt_batch4/snapshot.pickle.gz');
const EIGHT = fixture('fit/minigpt_batch8/snapshot.pickle.gz');

after(support.close);

async function said(page: Page): Promise<string> {
    await rested(page);
    return (await page.textContent('.whatif .answer')) ?? '';
}

test('trying settings and sizes of the device gives the figures of memviz simulate', async () => {
    const conf = 'expandable_segments:True';
    await inPage(pageFile(GPT, 'snapshot.pickle.gz'), '#tab=whatif', async (page) => {
        await ready(page);
        const recorded = await page.locator('#timelines canvas').first().screenshot();
        for (const [settings, capacity] of [
            [conf, null],
            [null, '24GiB'],
            [conf, '4096MiB'],
        ] as const) {
            await page.fill('.whatif [aria-label="Allocator settings"]', settings ?? '');
            await page.fill('.whatif [aria-label="Memory of the device, as a size"]', capacity ?? '');
            const shown = await said(page);
            const options = [...(settings ? ['--alloc-conf', settings] : []), ...(capacity ? ['--capacity', capacity] : [])];
            const run = answer<Simulated>('simulate', GPT, ...options).devices[0].runs.at(-1)!;
            // A run that ends early has no peak to compare.
            for (const bytes of run.finishes ? [run.max_allocated_bytes, run.max_reserved_bytes] : [])
                assert.ok(shown.includes(size(bytes)), `${options}: ${shown}, expected ${size(bytes)}`);
            assert.equal(/Every request is served/.test(shown), run.finishes, shown);
            if (!run.finishes) assert.ok(shown.includes(`at entry ${run.fails_at_entry!.toLocaleString('en-US')} of`), shown);
            assert.ok(shown.includes('memviz simulate snapshot.pickle.gz --'), shown);
        }
        // The curve ends where the program would fail, and the link goes there.
        assert.notDeepEqual(await page.locator('#timelines canvas').first().screenshot(), recorded);
        assert.match((await page.textContent('#where .cured')) ?? '', /with 2 changes: out of memory at entry/);
        await page.click('.whatif .answer .link');
        await rested(page);
        const there = (await page.textContent('.whatif .answer .link')) ?? '';
        assert.ok(((await page.textContent('#where')) ?? '').includes(there), there);
        const link = new URL(page.url()).hash;
        assert.match(link, /conf=expandable_segments%3ATrue&capacity=4294967296/);
        await page.fill('.whatif [aria-label="Allocator settings"]', 'max_split_size_mb:few');
        await page.waitForSelector('.whatif [aria-invalid="true"]');
        assert.match((await page.textContent('.whatif fieldset .alarm:not([hidden])')) ?? '', /^.*expected .*max_split_size_mb/);
        await page.click('.whatif >> text=as recorded');
        await settled(page);
        assert.equal(await page.locator('#where .cured').count(), 0);
    });
});

test('a slider and the name of a GPU set the size of the device', async () => {
    await inPage(pageFile(GPT, 'snapshot.pickle.gz'), '#tab=whatif', async (page) => {
        await ready(page);
        await page.selectOption('.whatif [aria-label="GPU"]', { index: 1 });
        const shown = await said(page);
        const name = (await page.locator('.whatif [aria-label="GPU"] option:checked').textContent())!.split(',')[0];
        const [{ runs }] = answer<Simulated>('simulate', GPT, '--gpu', name).devices;
        assert.ok(shown.includes(size(runs.at(-1)!.max_reserved_bytes)), shown);
        const slider = page.locator('.whatif [aria-label="Memory of the device"]');
        await slider.focus();
        for (let press = 0; press < 3; press++) await slider.press('Home');
        await said(page);
        assert.match(await page.inputValue('.whatif [aria-label="Memory of the device, as a size"]'), / (MiB|GiB)$/);
    });
});

test('a change can be switched on in the what-if view and in the findings', async () => {
    await inPage(pageFile(GPT, 'snapshot.pickle.gz'), '#tab=whatif', async (page) => {
        await ready(page);
        await page.locator('.whatif .cures input').first().check();
        await settled(page);
        assert.match((await page.textContent('#where .cured')) ?? '', /^with the change: peak /);
        await page.click('#tab-findings');
        assert.equal(await page.locator('#panel-findings input:checked').count(), 1);
    });
});

test('each of several fixes of a mistake is a switch, with its bytes and its lines of code', async () => {
    interface Triage {
        devices: { advice: { change: string; code: string; alternatives: { change: string; saves_allocated_bytes: number; code: string }[] }[] }[];
    }
    const recording = fixture('stories/retained_graph_mdn_flawed/snapshot.pickle.gz');
    const [{ advice }] = answer<Triage>('triage', recording).devices;
    const [{ maxima }] = answer<{ devices: { maxima: { allocated_bytes: number } }[] }>('peak', recording).devices;
    const [[first]] = [advice];
    const [other] = first.alternatives;
    assert.ok(other.saves_allocated_bytes > 0);
    await inPage(pageFile(recording, 'snapshot.pickle.gz'), '#tab=whatif', async (page) => {
        await ready(page);
        const boxes = page.locator('.whatif .cures input');
        assert.equal(await boxes.count(), advice.length + first.alternatives.length);
        const row = async (at: number) => (await page.locator('.whatif .cures label').nth(at).textContent()) ?? '';
        assert.ok((await row(0)).includes(first.change) && (await row(0)).includes(first.code), await row(0));
        const said = await row(1);
        for (const words of [`or ${other.change}`, other.code, `saves at least ${size(other.saves_allocated_bytes)} of`]) assert.ok(said.includes(words), said);
        await boxes.nth(0).check();
        await rested(page);
        assert.match(page.url(), /cures=0/);
        // One of the two is enough.
        await boxes.nth(1).check();
        await rested(page);
        assert.match(page.url(), /cures=1/);
        assert.deepEqual(await boxes.evaluateAll((all) => all.map((box) => (box as HTMLInputElement).checked)), [false, true]);
        const peak = `${size(maxima.allocated_bytes - other.saves_allocated_bytes)} instead of ${size(maxima.allocated_bytes)} allocated`;
        const where = (await page.textContent('#where .cured')) ?? '';
        assert.ok(where.includes(peak), `${where}: ${peak}`);
        await page.click('#tab-findings');
        const found = page.locator('#panel-findings .other');
        assert.equal(await found.count(), 1);
        for (const words of [other.change, other.code]) assert.ok(((await found.textContent()) ?? '').includes(words), words);
        assert.deepEqual(await page.locator('#panel-findings input').evaluateAll((all) => all.map((box) => (box as HTMLInputElement).checked)), [false, true]);
        await found.locator('input').uncheck();
        await settled(page);
        assert.equal(await page.locator('#where .cured').count(), 0);
    });
});

test('two recordings that differ in one number predict others, as memviz fit does', async () => {
    await inPage(pageFile(FOUR), '#tab=whatif', async (page) => {
        await ready(page);
        await drop(page, EIGHT);
        await ready(page, 2);
        assert.match(await said(page), /Enter what A and B differ in/);
        await page.fill('.whatif [aria-label="What the recordings differ in"]', 'batch=4,8');
        await said(page);
        await page.fill('.whatif [aria-label="Value, as a number"]', '16');
        await page.fill('.whatif [aria-label="Memory of the device, as a size"]', '24 GiB');
        const shown = await said(page);
        const options = ['--vary', 'batch=4,8', '--at', '16', '--capacity', '24GiB'];
        const [{ scaling }] = answer<Fitted>('fit', FOUR, EIGHT, ...options).devices;
        assert.ok(scaling.predictions.length >= 3);
        for (const { value, finishes, max_allocated_bytes, max_reserved_bytes } of scaling.predictions) {
            const row = (await page.locator('.whatif tbody tr', { has: page.locator(`th:text-is("${value}")`) }).textContent()) ?? '';
            for (const bytes of [max_allocated_bytes, max_reserved_bytes]) assert.ok(row.includes(size(bytes)), `${value}: ${row}`);
            assert.ok(row.includes(finishes ? 'fits' : 'out of memory'), row);
        }
        assert.ok(shown.includes(`largest batch that fits is ${scaling.largest!.toLocaleString('en-US')}`), shown);
    });
});

test('the memory of another batch size is drawn over the nearest recording, with the peaks of memviz fit', async () => {
    await inPage(pageFile(FOUR), '#tab=whatif&vary=batch%3D4%2C8', async (page) => {
        await ready(page);
        await drop(page, EIGHT);
        await ready(page, 2);
        await page.fill('.whatif [aria-label="What the recordings differ in"]', 'batch=4,8');
        await said(page);
        const pictures = () => Promise.all([0, 1].map((at) => page.locator('#timelines canvas').nth(at).screenshot()));
        const [ofFour] = await pictures();
        for (const [value, place] of [
            [8, 1],
            [4, 0],
            [16, 1],
        ] as const) {
            // Firefox's driver would append to the present value.
            await page.locator('.whatif [aria-label="Value, as a number"]').evaluate((input: HTMLInputElement, typed) => {
                input.value = typed;
                input.dispatchEvent(new Event('input'));
            }, String(value));
            await said(page);
            const [{ scaling }] = answer<Fitted>('fit', FOUR, EIGHT, '--vary', 'batch=4,8', '--at', String(value)).devices;
            const { max_allocated_bytes, max_reserved_bytes } = scaling.predictions.find((each) => each.value === value)!;
            const where = (await page.textContent('#where .cured')) ?? '';
            assert.match(where, new RegExp(`^with batch ${value}: peak `));
            for (const bytes of [max_allocated_bytes, max_reserved_bytes]) assert.ok(where.includes(size(bytes)), where);
            // The highest value that the pointer finds on the curve, which exists only in the recording that gives the order of requests.
            const highest: (number | null)[] = [];
            for (const at of [0, 1]) {
                const tips = await page.locator('#timelines canvas').nth(at).evaluate((canvas) => {
                    const { left, top, width } = canvas.getBoundingClientRect();
                    const xs = Array.from({ length: Math.floor(width) - 86 }, (_, x) => left + 70 + x);
                    return xs.map((clientX) => {
                        const event = { clientX, clientY: top + 60, bubbles: true, pointerId: 1, pointerType: 'mouse' };
                        canvas.dispatchEvent(new PointerEvent('pointermove', event));
                        return document.querySelector('.tip')?.textContent ?? '';
                    });
                });
                const found = tips.map((tip) => new RegExp(`([\\d.]+ [KMG]iB) with batch ${value}`).exec(tip)?.[1]);
                const all = found.filter((text) => text !== undefined).map((text) => typedBytes(text)!);
                highest.push(all.length > 0 ? Math.max(...all) : null);
            }
            assert.equal(highest[1 - place], null);
            assert.equal(size(highest[place] ?? 0), size(max_allocated_bytes), `batch ${value}`);
        }
        await page.click('#where >> text=as recorded');
        await settled(page);
        assert.equal(await page.locator('#where .cured').count(), 0);
        await page.mouse.move(5, 5);
        await settled(page);
        assert.deepEqual((await pictures())[0], ofFour);
    });
});

test('fixes are tried in the timeline, with the figures of memviz triage', async () => {
    interface Triage {
        devices: {
            advice: { change: string; saves_allocated_bytes: number | null; saves_reserved_bytes: number | null }[];
        }[];
    }
    const [{ advice }] = answer<Triage>('triage', GPT).devices;
    const [{ maxima }] = answer<Peak>('peak', GPT).devices;
    const played = advice.filter(({ saves_allocated_bytes }) => saves_allocated_bytes !== null);
    assert.ok(played.length > 1);
    await inPage(pageFile(GPT), '#tab=findings', async (page) => {
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

test('checkpointing, optimizers and offloading give the figures of memviz simulate', async () => {
    await inPage(pageFile(GPT, 'snapshot.pickle.gz'), '#tab=whatif', async (page) => {
        await ready(page);
        await rested(page);
        const choose = async (label: string, value: string) => {
            await page.selectOption(`.whatif [aria-label="${label}"]`, value);
            return said(page);
        };
        const expected = (...options: string[]) => answer<Simulated>('simulate', GPT, ...options).devices[0].runs.at(-1)!;
        let shown = await choose('Optimizer', 'optimizer:sgd');
        const figures = ({ max_allocated_bytes, max_reserved_bytes }: ReturnType<typeof expected>) => {
            for (const bytes of [max_allocated_bytes, max_reserved_bytes]) assert.ok(shown.includes(size(bytes)), `${shown}, expected ${size(bytes)}`);
        };
        figures(expected('--optimizer', 'sgd'));
        assert.ok(shown.includes('memviz simulate snapshot.pickle.gz --optimizer sgd'), shown);
        assert.match((await page.textContent('#where .cured')) ?? '', /^with the change: peak/);
        await page.check('.whatif [value="offload:activations"]');
        shown = await said(page);
        figures(expected('--optimizer', 'sgd', '--offload', 'activations'));
        // What cannot be combined is refused, and the rest stays.
        const call = 'checkpoint:minigpt.py:53 forward';
        await choose('Checkpointing', call);
        assert.match(await page.innerText('.whatif fieldset .alarm:not([hidden])'), /cannot be combined/);
        assert.equal((await link(page)).get('changes'), 'optimizer:sgd;offload:activations');
        await page.uncheck('.whatif [value="offload:activations"]');
        shown = await said(page);
        figures(expected('--optimizer', 'sgd', '--checkpoint', 'minigpt.py:53 forward'));
    });
});
