/** Nothing on the page moves while it opens. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import * as support from './support.ts';
import { fixture, inPage, onlyChromium, pageOf, ready, settled, written } from './support.ts';

const OOM = fixture('snapshots/oom/snapshot.pickle.gz');
const LEAK = fixture('snapshots/leak/snapshot.pickle.gz');
/** As in the Core Web Vitals: half of what counts as good. */
const MOST = 0.05;

after(support.close);

/** The cumulative layout shift so far. */
function shift(page: Page): Promise<number> {
    return page.evaluate(
        () =>
            new Promise<number>((done) => {
                new PerformanceObserver((list) => {
                    const shifts = list.getEntries() as unknown as { value: number; hadRecentInput: boolean }[];
                    done(shifts.reduce((sum, { value, hadRecentInput }) => sum + (hadRecentInput ? 0 : value), 0));
                }).observe({ type: 'layout-shift', buffered: true });
                setTimeout(() => done(0), 300);
            }),
    );
}

test('parts of the page stay where they are while the recording is analyzed', onlyChromium('layout shifts'), async () => {
    for (const recording of [OOM, LEAK]) {
        for (const page of [pageOf(recording), written('view', recording)]) {
            await inPage(page, '', async (page) => {
                await ready(page);
                await page.waitForFunction(() => document.querySelector('#panel-findings')?.textContent !== 'Analyzing the recording…');
                await settled(page);
                const moved = await shift(page);
                assert.ok(moved < MOST, `${recording}: ${moved}`);
            });
        }
    }
});

test('a page has the findings of its recording from the start, and they are those of the engine', async () => {
    const texts: string[] = [];
    for (const file of [pageOf(LEAK), written('view', LEAK)]) {
        await inPage(file, '#tab=findings', async (page) => {
            await ready(page);
            await page.waitForFunction(() => document.querySelector('#panel-findings')?.textContent !== 'Analyzing the recording…');
            // The file is named by its path in one of them.
            const text = (await page.textContent('#panel-findings')) ?? '';
            texts.push(text.replaceAll(LEAK, 'snapshot.pickle.gz'));
        });
    }
    assert.ok(texts[0].length > 100);
    assert.equal(texts[1], texts[0]);
});
