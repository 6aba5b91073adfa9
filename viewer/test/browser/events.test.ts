/** The list of events. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import * as support from './support.ts';
import { answer, fixture, inPage, link, pageOf, ready, settled } from './support.ts';

const OOM = fixture('snapshots/oom/snapshot.pickle.gz');

after(support.close);

interface Info {
    devices: { entries: number; actions: Record<string, number> }[];
}

test('the list of events has all entries, and scrolls to the cursor', async () => {
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
    await inPage(pageOf(OOM), '#tab=events', async (page) => {
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
        // The row of the only failed request, and its position.
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
        // A free links to its allocation, and back.
        await page.selectOption('.events select[aria-label="Actions"]', 'frees');
        await settled(page);
        const [{ entry: freed }] = await shown(page);
        // Rows may be redrawn while the driver scrolls to one.
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
        // A link to the list shows the same list.
        await page.reload();
        await ready(page);
        assert.equal(await count(page), large);
        assert.equal(await page.inputValue('.events input'), '500.00 MiB');
    });
});
