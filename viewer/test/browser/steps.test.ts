/** Steps above each other, and the axis of folded time. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import * as support from './support.ts';
import { fixture, inPage, link, pageOf, ready, rested, wide } from './support.ts';

const LEAK = fixture('snapshots/leak/snapshot.pickle.gz');
const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');

after(support.close);

test('steps are drawn above each other, and those that differ from the median are named', async () => {
    await inPage(pageOf(LEAK), '', async (page) => {
        await ready(page);
        await page.click('#where >> text=compare steps');
        await rested(page);
        const said = await page.innerText('#panel-steps');
        const [, steps, alike, differ] = (/(\d+) steps: (\d+) of them like the median step everywhere, (\d+) not/.exec(said) ?? []).map(Number);
        assert.ok(steps >= 19 && alike + differ === steps && differ > 10, said);
        assert.ok(said.includes('step_19 (') && said.includes('step_0 ('), said);
        // Memory grows with every step, so the first and the last one are farthest from the median.
        const links = await page.$$eval('#panel-steps [data-step]', (all) => all.map((each) => Number((each as HTMLElement).dataset.step)));
        assert.deepEqual([...links].slice(0, 2).sort((a, b) => a - b), [1, steps], String(links));
        await page.click(`#panel-steps [data-step="${steps}"]`);
        const state = await link(page);
        assert.ok(Number(state.get('from')) > 10_000, state.toString());
        assert.match((await page.textContent('#where')) ?? '', /^at entry 1[67],\d+ of 17,152/);
    });
    await inPage(pageOf(fixture('snapshots/tiny/snapshot.pickle.gz')), '#tab=steps', async (page) => {
        await ready(page);
        await rested(page);
        assert.match(await page.innerText('#panel-steps'), /at least 3: /);
    });
});

test('idle periods are shortened on the axis of time, and drawn to scale on request', async () => {
    await inPage(pageOf(LEAK), '', async (page) => {
        await ready(page);
        const time = page.locator('[aria-label="Axis"] >> text=time');
        await time.click();
        assert.equal((await link(page)).get('x'), 'folded');
        const folded = await wide(page, 0.75);
        assert.ok(folded > 400, `${folded} pixels`);
        await time.click();
        assert.equal((await link(page)).get('x'), 'time');
        assert.equal(await time.getAttribute('aria-pressed'), 'true');
    });
    await inPage(pageOf(LEAK), '#x=time', async (page) => {
        await ready(page);
        const toScale = await wide(page, 0.75);
        assert.ok(toScale < 120, `${toScale} pixels`);
    });
    // Two recordings have no common folds.
    await inPage(pageOf(LEAK), '#x=folded', async (page) => {
        await ready(page);
        await support.drop(page, GPT);
        await ready(page, 2);
        await rested(page);
        assert.ok(await page.isHidden('#alarm'));
        assert.equal(await page.locator('[aria-label="Axis"] >> text=time').getAttribute('aria-pressed'), 'true');
    });
});
