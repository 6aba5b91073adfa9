/** The page with a keyboard, with a screen reader, on a phone, and on paper. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import * as support from './support.ts';
import { drop, fixture, inPage, onlyChromium, pageFile, ready, settled } from './support.ts';

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const OOM = fixture('snapshots/oom/snapshot.pickle.gz');

after(support.close);

const tabs = (page: Page): Promise<string[]> =>
    page.$$eval('#tabs [role="tab"]', (all) => all.map((each) => each.id.replace('tab-', '')));

test('every control has a name and can be reached with Tab', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        for (const tab of await tabs(page)) {
            await page.click(`#tab-${tab}`);
            await settled(page);
            const nameless = await page.$$eval('button, input, select, canvas, [tabindex="0"], [role="listbox"]', (all) =>
                all
                    .filter((each) => (each as HTMLElement).offsetParent !== null)
                    .filter((each) => {
                        const labeled = (each as HTMLInputElement).labels?.[0]?.textContent;
                        const said = each.getAttribute('aria-label') ?? labeled ?? each.textContent ?? '';
                        return said.trim() === '';
                    })
                    .map((each) => each.outerHTML.slice(0, 200)),
            );
            assert.deepEqual(nameless, [], tab);
            const [panel, button] = [page.locator(`#panel-${tab}`), page.locator(`#tab-${tab}`)];
            assert.equal(await panel.getAttribute('aria-labelledby'), `tab-${tab}`);
            assert.equal(await button.getAttribute('aria-selected'), 'true');
            // The first control of a view comes right after its tab, unless it has no controls.
            await button.focus();
            await page.keyboard.press('Tab');
            const isWithin = await page.evaluate((id) => document.getElementById(id)!.contains(document.activeElement), `panel-${tab}`);
            assert.ok(isWithin || tab === 'blocks', `${tab}: ${await page.evaluate(() => document.activeElement?.outerHTML.slice(0, 200))}`);
        }
    });
});

test('the keyboard moves through views, rows, pictures and events', async () => {
    await inPage(pageFile(GPT), '', async (page) => {
        await ready(page);
        const all = await tabs(page);
        await page.focus('#tab-table');
        for (const tab of all.slice(1)) {
            await page.keyboard.press('ArrowRight');
            await settled(page);
            assert.equal(await page.evaluate(() => document.activeElement?.id), `tab-${tab}`);
        }
        for (const [at, tab] of all.entries()) {
            await page.keyboard.press(String(at + 1));
            await settled(page);
            assert.equal(await page.getAttribute(`#tab-${tab}`, 'aria-selected'), 'true');
        }
        // A row of the table, then back.
        await page.keyboard.press('1');
        await settled(page);
        await page.focus('#panel-table tbody tr');
        await page.keyboard.press('Enter');
        await settled(page);
        assert.ok((await page.locator('#details ol.stack li').count()) > 0);
        await page.keyboard.press('Escape');
        await settled(page);
        assert.equal(await page.locator('#details ol.stack').count(), 0);
        // Wherever the cursor moves, the page says what it is on.
        const said = page.locator('#where [aria-live="polite"]');
        const before = await said.textContent();
        await page.locator('#timelines canvas').focus();
        await page.keyboard.press('Shift+ArrowLeft');
        await settled(page);
        assert.notEqual(await said.textContent(), before);
        for (const tab of ['blocks', 'segments', 'flame']) {
            await page.click(`#tab-${tab}`);
            await settled(page);
            await page.locator(`#panel-${tab} canvas`).focus();
            await page.keyboard.press('ArrowDown');
            await page.keyboard.press('Enter');
            await settled(page);
            assert.ok((await page.locator('#details h2').count()) > 0, tab);
        }
        await page.click('#tab-events');
        await settled(page);
        await page.focus('.events .list');
        await page.keyboard.press('Home');
        await page.keyboard.press('ArrowDown');
        await settled(page);
        const active = await page.getAttribute('.events .list', 'aria-activedescendant');
        assert.equal(await page.getAttribute(`#${active}`, 'aria-selected'), 'true');
        await page.keyboard.press('?');
        assert.ok(await page.isVisible('dialog#help'));
        await page.keyboard.press('Escape');
        assert.ok(await page.isHidden('dialog#help'));
    });
});

test('the keyboard folds and pins tracks, tries changes and sizes, and moves through a difference', async () => {
    await inPage(pageFile(GPT), '#tab=tracks', async (page) => {
        await ready(page);
        const tracks = () => page.locator('.tracks .scrolled .track').count();
        const all = await tracks();
        const fold = page.locator('.track.head button').first();
        assert.equal(await fold.getAttribute('aria-expanded'), 'true');
        await fold.focus();
        await page.keyboard.press('Enter');
        await settled(page);
        assert.equal(await tracks(), 1);
        // The focus stays, so the same key unfolds the track.
        assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-expanded')), 'false');
        await page.keyboard.press('Enter');
        await settled(page);
        assert.equal(await tracks(), all);
        const pin = page.locator('.track .pin').first();
        assert.match((await pin.getAttribute('aria-label')) ?? '', /^Pin allocated$/);
        await pin.focus();
        await page.keyboard.press('Space');
        await settled(page);
        assert.equal(await page.locator('.tracks > .pinned .pin').getAttribute('aria-pressed'), 'true');
        // A screen reader reads the result of a trial, both its figures and the line at the cursor.
        await page.click('#tab-whatif');
        await settled(page);
        for (const host of ['.whatif .answer', '#where .texts']) assert.equal(await page.getAttribute(host, 'aria-live'), 'polite');
        await page.locator('.whatif .cures input').first().focus();
        await page.keyboard.press('Space');
        await settled(page);
        assert.match((await page.textContent('#where')) ?? '', /with the change: /);
        await page.locator('.whatif [aria-label="Memory of the device"]').focus();
        await page.keyboard.press('ArrowLeft');
        await settled(page);
        const slider = page.locator('.whatif [aria-label="Memory of the device"]');
        assert.match((await slider.getAttribute('aria-valuetext')) ?? '', /GiB$/);
        assert.match((await page.textContent('#where')) ?? '', /with 2 changes: /);
        await page.locator('.whatif >> text=as recorded').focus();
        await page.keyboard.press('Enter');
        await settled(page);
        assert.equal(await page.locator('#where .cured').count(), 0);
    });
    await inPage(pageFile(GPT), '#tab=flame', async (page) => {
        await ready(page);
        await drop(page, OOM);
        await ready(page, 2);
        const [both] = [page.locator('#panel-flame .tools [aria-pressed="true"]')];
        assert.match((await both.textContent()) ?? '', /difference/);
        await page.locator('#panel-flame canvas:visible').focus();
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await settled(page);
        assert.match((await page.textContent('#details')) ?? '', /in A.* in \d+ blocks.*in B/s);
        await page.locator('#where >> text=first difference').focus();
        await page.keyboard.press('Enter');
        await settled(page);
        assert.match((await page.textContent('#where [aria-live]')) ?? '', /the first \d+ requests are the same; then A /);
    });
});

test('the keyboard tries an alternative, and moves through a page without a history', async () => {
    await inPage(pageFile(fixture('stories/retained_graph_mdn_flawed/snapshot.pickle.gz')), '#tab=findings', async (page) => {
        await ready(page);
        const box = page.locator('#panel-findings .other input');
        assert.equal(await box.evaluate((input: HTMLInputElement) => input.labels?.[0].textContent?.trim()), 'show the predicted memory in the timeline');
        await box.focus();
        await page.keyboard.press('Space');
        await settled(page);
        assert.match((await page.textContent('#where [aria-live]')) ?? '', /with the change: peak /);
        assert.equal(await page.evaluate(() => (document.activeElement as HTMLInputElement).checked), true);
    });
    await inPage(pageFile(fixture('snapshots/no_history/snapshot.pickle.gz')), '', async (page) => {
        await ready(page);
        const all = await tabs(page);
        await page.focus('#tab-segments');
        // Hidden controls cannot be reached; the tab of a view leads to the reason why it is empty.
        for (let turn = 0; turn < all.length; turn++) {
            await page.keyboard.press('ArrowRight');
            await settled(page);
            const tab = await page.evaluate(() => document.activeElement!.id.replace('tab-', ''));
            assert.ok((await page.innerText(`#panel-${tab}`)).trim() !== '' || ['segments', 'flame'].includes(tab), tab);
            assert.equal(await page.getAttribute(`#tab-${tab}`, 'aria-controls'), `panel-${tab}`);
        }
        await page.locator('#panel-segments canvas').focus();
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await settled(page);
        assert.ok((await page.locator('#details h2').count()) > 0);
    });
});

test('the keyboard opens all notes on how complete a recording is', async () => {
    await inPage(pageFile(fixture('snapshots/gpt_late/snapshot.pickle.gz')), '', async (page) => {
        await ready(page);
        const doubts = page.locator('#figures details');
        const [summary, other] = [doubts.locator('summary'), doubts.locator('div').first()];
        assert.match((await summary.textContent()) ?? '', /^incomplete history: .* \(and \d more\)$/);
        assert.ok(await other.isHidden());
        await summary.focus();
        await page.keyboard.press('Enter');
        assert.ok(await other.isVisible());
    });
});

test('tabs do not move, whatever is chosen and wherever the cursor is', async () => {
    await inPage(pageFile(OOM), '', async (page) => {
        await ready(page);
        const places = () =>
            page.$$eval('#tabs [role="tab"]', (all) =>
                all.map((each) => {
                    const { x, y, width } = each.getBoundingClientRect();
                    return [x, y, width].map(Math.round).join();
                }),
            );
        const first = await places();
        for (const tab of await tabs(page)) {
            await page.click(`#tab-${tab}`);
            await settled(page);
            assert.deepEqual(await places(), first, tab);
        }
        for (const key of ['p', 'm', 'Shift+ArrowRight', 'm']) {
            await page.keyboard.press(key);
            await settled(page);
            assert.deepEqual(await places(), first, key);
        }
    });
});

test('at the width of a phone nothing needs to be scrolled sideways', async () => {
    await inPage(
        pageFile(OOM),
        '',
        async (page) => {
            await ready(page);
            for (const tab of await tabs(page)) {
                await page.evaluate((id) => document.getElementById(id)!.click(), `tab-${tab}`);
                await settled(page);
                const widths = await page.evaluate((id) => {
                    const panel = document.getElementById(id)!;
                    return [document.scrollingElement!.scrollWidth, panel.scrollWidth - panel.clientWidth];
                }, `panel-${tab}`);
                assert.ok(widths[0] <= 390 && widths[1] <= 0, `${tab}: ${widths}`);
                if (tab !== 'events') continue;
                // Each entry shows its site, inside the screen and without overlapping anything.
                const seen = await page.$$eval('.events .line', (lines) =>
                    lines.map((line) => {
                        const [site, action, link] = ['.site', '.action', 'button'].map((of) => line.querySelector(of)?.getBoundingClientRect());
                        const right = Math.max(site!.right, link?.right ?? 0);
                        return site!.width > 60 && site!.top >= action!.bottom - 1 && right <= 390 && site!.right <= (link?.left ?? 390);
                    }),
                );
                assert.ok(seen.length > 10 && seen.every((each) => each), String(seen));
            }
        },
        { viewport: { width: 390, height: 844 } },
    );
});

test('on a phone, the details of an entry do not cover the buttons that go to the next one', async () => {
    const look = async (page: Page) => {
        await ready(page);
        const next = page.locator('.events [aria-label="Steps"] button').nth(2);
        for (const _ of [1, 2, 3]) {
            await next.click();
            await settled(page);
            assert.ok(await page.isVisible('#side .close'));
        }
        await page.click('#side .close');
        // The page closes it with the next picture.
        await page.locator('#side .close').waitFor({ state: 'hidden' });
    };
    await inPage(pageFile(OOM), '#tab=events&at=300', look, { viewport: { width: 390, height: 844 } });
});

test('no view repeats a finding, and the side panel is never empty', async () => {
    interface Triage {
        devices: { verdict: string; advice: { change: string }[] }[];
    }
    for (const recording of [GPT, OOM]) {
        const [{ verdict, advice }] = support.answer<Triage>('triage', recording).devices;
        await inPage(pageFile(recording), '', async (page) => {
            await ready(page);
            for (const tab of await tabs(page)) {
                await page.click(`#tab-${tab}`);
                await settled(page);
                const text = await page.innerText('body');
                const times = (words: string) => text.split(words).length - 1;
                assert.equal(times(verdict), 1, `${tab}: ${verdict}`);
                for (const { change } of advice) assert.ok(times(change) <= 1, `${tab}: ${change}`);
                if (await page.isVisible('#side')) assert.ok((await page.innerText('#side')).length > 40, tab);
            }
        });
    }
});

test('rows of tables and lists are 18 pixels high', async () => {
    await inPage(pageFile(GPT), '#tab=table', async (page) => {
        await ready(page);
        const heights = (of: string) => page.$$eval(of, (all) => [...new Set(all.map((each) => each.getBoundingClientRect().height))]);
        assert.deepEqual(await heights('#panel-table tbody tr'), [18]);
        await page.click('#tab-events');
        await settled(page);
        assert.deepEqual(await heights('.events .line'), [18]);
    });
});

test('on paper there is what the screen shows, without the controls', onlyChromium('print media'), async () => {
    await inPage(pageFile(OOM), '', async (page) => {
        await ready(page);
        await page.emulateMedia({ media: 'print' });
        for (const of of ['#actions', '#controls', '#tabs', '#split', '#where .buttons']) assert.ok(await page.isHidden(of), of);
        for (const of of ['#verdict', '#timelines canvas', '#panel-table']) assert.ok(await page.locator(of).first().isVisible(), of);
        const beyond = await page.evaluate(() => document.scrollingElement!.scrollWidth - innerWidth);
        assert.ok(beyond <= 0, `${beyond} pixels beyond the page`);
    });
    // Pictures are drawn again for the paper, not stretched to it.
    for (const tab of ['blocks', 'segments', 'flame', 'tracks']) {
        await inPage(pageFile(OOM), `#tab=${tab}`, async (page) => {
            await ready(page);
            await page.emulateMedia({ media: 'print' });
            await page.setViewportSize({ width: 794, height: 1123 });
            await settled(page);
            for (const canvas of await page.locator(`#timelines canvas:visible, #panel-${tab} canvas:visible`).all()) {
                const [width, height, shownWidth, shownHeight] = await canvas.evaluate((of: HTMLCanvasElement) => [of.width, of.height, of.clientWidth, of.clientHeight]);
                if (shownHeight === 0) continue;
                assert.deepEqual([width, height], [shownWidth, shownHeight], tab);
                assert.ok(shownHeight > 250, `${tab}: ${shownHeight}`);
            }
            assert.ok(await page.isHidden(`#panel-${tab} .tools .group`));
        });
    }
});
