/** What blocks and frames are called where they are drawn. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, fixture, inPage, onlyChromium, pageOf, type Peak, place, ready, rested } from './support.ts';

const OOM = fixture('snapshots/oom/snapshot.pickle.gz');
const HELD = fixture('holders/attribute.pickle.gz');

after(support.close);

/** The tooltip after the pointer has come to rest in a picture. */
async function told(page: Page, across: number, down: number, host: string): Promise<string> {
    await page.mouse.move(...(await place(page, across, down, host)));
    await page.waitForSelector('.tip:not([hidden]) .strong');
    await rested(page);
    return page.innerText('.tip');
}

test('a block in its segment is named by its category and its site, whatever colors represent', async () => {
    for (const by of ['site', 'category', 'phase']) {
        await inPage(pageOf(OOM), `#tab=segments&at=6000&by=${by}`, async (page) => {
            await ready(page);
            const tip = await told(page, 0.3, 0.25, '#panel-segments');
            assert.match(tip, /activations|parameters|optimizer state|temporary tensors/, `${by}: ${tip}`);
            assert.match(tip, /\w+\.py:\d+ \w+/, `${by}: ${tip}`);
        });
    }
});

test('a block is named by what holds it, if the recording has walks', async () => {
    const [{ attribution }] = answer<Peak>('peak', HELD, '--by', 'holder').devices;
    const held = attribution.rows.map(({ label }) => label).filter((label) => !label.startsWith('('));
    assert.ok(held.length > 0);
    await inPage(pageOf(HELD), '#tab=blocks&by=holder', async (page) => {
        await ready(page);
        const tip = await told(page, 0.5, 0.85, '#panel-blocks');
        assert.match(tip, /held by [\w.[\]*]+/, tip);
        await page.mouse.click(...(await place(page, 0.5, 0.85, '#panel-blocks')));
        await rested(page);
        assert.match(await page.innerText('#details dl'), /held by\n[\w.]+/);
    });
});

test('frames of the flame graph show their sizes', onlyChromium('downloads'), async () => {
    await inPage(pageOf(OOM), '#tab=flame', async (page) => {
        await ready(page);
        await rested(page);
        const [download] = await Promise.all([page.waitForEvent('download'), page.click('#actions >> text=SVG')]);
        const svg = readFileSync(await download.path()).toString();
        const [{ attribution }] = answer<Peak>('peak', OOM, '--at', 'oom').devices;
        assert.ok(svg.includes(`>${size(attribution.total_bytes)}</text>`), 'the root has the size of all');
    });
});
