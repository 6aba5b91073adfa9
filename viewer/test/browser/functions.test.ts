/** Callers and callees of a function. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import * as support from './support.ts';
import { answer, fixture, inPage, link, pageOf, type Peak, ready, root, settled } from './support.ts';

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');

after(support.close);

test('a function is shown with its callers and callees', async () => {
    await inPage(pageOf(GPT), '#by=function', async (page) => {
        await ready(page);
        const { rows } = answer<Peak>('peak', GPT, '--by', 'function').devices[0].attribution;
        const bytes = (label: string) => rows.find((row) => row.label === label)?.bytes ?? 0;
        // In a flame graph, backward's allocations are below the forward call that they belong to.
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
        // Another function in the picture can be chosen next.
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
