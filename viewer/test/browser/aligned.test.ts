/** The axis on which steps of several recordings begin at the same place. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import { LEFT, RIGHT } from '../../src/plot.ts';
import * as support from './support.ts';
import { answer, drop, exact, fixture, inPage, link, pageOf, type Peak, ready, rested } from './support.ts';

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const CHECKPOINTED = fixture('snapshots/gpt_train_ckpt/snapshot.pickle.gz');
/** Number of steps of each recording; the entries after the last step are as wide as a step. */
const STEPS = 4;
const WIDTH = STEPS + 1;

after(support.close);

/** The text at the pointer, some pixels away from the boundary between two steps in a picture. */
async function said(page: Page, picture: string, steps: number, of: number, pixels: number, down: number): Promise<string> {
    const box = (await page.locator(picture).boundingBox())!;
    const x = LEFT + ((box.width - LEFT - RIGHT) * steps) / of + pixels;
    await page.mouse.move(box.x + x, box.y + down);
    await rested(page);
    const tip = page.locator('.tip:not([hidden])');
    return (await tip.count()) > 0 ? ((await tip.textContent()) ?? '') : '';
}

const axis = (page: Page, name: string) => page.locator('#controls [aria-label="Axis"] button', { hasText: name });

test('steps of two recordings begin at the same place, and both are shown there', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        assert.equal(await axis(page, 'step').count(), 0, 'one recording is aligned with nothing');
        await drop(page, CHECKPOINTED);
        await ready(page, 2);
        await axis(page, 'step').click();
        await rested(page);
        assert.equal((await link(page)).get('x'), 'step');
        const steps = async (end: number, pixels: number) => {
            const all: (string | undefined)[] = [];
            for (const lane of [1, 2]) {
                const tip = await said(page, `#timelines > div:nth-child(${lane}) canvas`, end, WIDTH, pixels, 60);
                all.push(/in (step_\d)/.exec(tip)?.[1]);
            }
            return all;
        };
        for (let end = 1; end < STEPS; end++) {
            const [before, behind] = [await steps(end, -3), await steps(end, 3)];
            assert.deepEqual(before, [`step_${end - 1}`, `step_${end - 1}`]);
            assert.deepEqual(behind, [`step_${end}`, `step_${end}`]);
        }
        // A click in one recording sets the cursor in both; the difference compares these instants.
        const box = (await page.locator('#timelines > div:nth-child(1) canvas').boundingBox())!;
        const x = LEFT + (box.width - LEFT - RIGHT) * (2.5 / WIDTH);
        await page.mouse.click(box.x + x, box.y + 60);
        await rested(page);
        const lines = await page.$$eval('#where .texts span', (all) => all.slice(0, 2).map((each) => each.textContent ?? ''));
        assert.ok(lines.every((line) => line.includes('in step_2')), String(lines));
        const entries = lines.map((line) => Number(/entry ([\d,]+) of/.exec(line)![1].replaceAll(',', '')));
        assert.notEqual(entries[0], entries[1]);
        const held = [GPT, CHECKPOINTED].map((file, at) => answer<Peak>('peak', file, '--at', `entry:${entries[at]}`).devices[0].attribution.total_bytes);
        const change = [...(await exact(page)).values()].reduce((sum, bytes) => sum + bytes, 0);
        assert.equal(change, held[1] - held[0]);
        // Another axis shows the same range of the first recording.
        await page.keyboard.press('+');
        await axis(page, 'entry').click();
        await rested(page);
        const state = await link(page);
        assert.ok(Number(state.get('from')) < entries[0] && entries[0] < Number(state.get('to')), String(state));
    });
});

test('steps of ranks begin at the same place in their tracks', async () => {
    const ranks = [0, 1, 2].map((rank) => fixture(`snapshots/ranks8/rank${rank}.pickle.gz`));
    const look = async (page: Page) => {
        await page.waitForSelector('#welcome:not([hidden])');
        const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('#actions >> text=Open…')]);
        await chooser.setFiles(ranks);
        await ready(page);
        await page.click('#tab-tracks');
        await axis(page, 'step').click();
        await rested(page);
        const tracks = page.locator('.tracks .scrolled .track.spans', { hasText: 'steps' });
        assert.equal(await tracks.count(), ranks.length);
        const top = (await page.locator('.tracks .scrolled canvas').boundingBox())!.y;
        for (let rank = 0; rank < ranks.length; rank++) {
            const { y } = (await tracks.nth(rank).boundingBox())!;
            // Two steps, and the entries after them.
            const at = (pixels: number) => said(page, '.tracks .scrolled canvas', 1, 3, pixels, y - top + 8);
            assert.match(await at(-3), /^step 1/);
            assert.match(await at(3), /^step 2/);
        }
    };
    await inPage(support.pageFile(null), '', look, { viewport: { width: 1280, height: 2400 } });
});

test('without steps there is no such axis, and the page says why', async () => {
    await inPage(pageOf(GPT), '#x=step&from=0&to=1000000', async (page) => {
        await ready(page);
        assert.equal((await link(page)).get('x'), null);
        await drop(page, fixture('snapshots/tiny/snapshot.pickle.gz'));
        await ready(page, 2);
        const button = axis(page, 'step');
        assert.ok(await button.isDisabled());
        assert.match((await button.getAttribute('title')) ?? '', /^Steps cannot be aligned: snapshot\.pickle\.gz: no annotation marks the steps/);
    });
});
