/** Moving through a recording: zooming, pointing, searching, links. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import * as support from './support.ts';
import { answer, exact, fixture, inPage, link, onlyChromium, pageOf, type Peak, place, ready, rested, settled } from './support.ts';
import { bytes as size } from '../../src/format.ts';

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');

after(support.close);

test('wheel, drag and keys zoom and move', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        const span = async () => {
            const state = await link(page);
            return [Number(state.get('from')), Number(state.get('to'))];
        };
        await page.mouse.move(...(await place(page, 0.5, 0.4)));
        await page.mouse.wheel(0, -400);
        const [from, to] = await span();
        assert.ok(from > 0 && to > from && to - from < 9107 / 2, `${from} to ${to}`);
        await page.keyboard.down('Shift');
        await page.mouse.down();
        await page.mouse.move(...(await place(page, 0.3, 0.4)), { steps: 5 });
        await page.mouse.up();
        await page.keyboard.up('Shift');
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
        await page.keyboard.press('9');
        assert.equal((await link(page)).get('tab'), 'findings');
    });
});

test('two fingers move and zoom, and choose no range', onlyChromium('touches'), async () => {
    const options = { hasTouch: true };
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        const [[left, y], [right]] = [await place(page, 0.4, 0.4), await place(page, 0.6, 0.4)];
        const driver = await page.context().newCDPSession(page);
        const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', ...at: number[]) =>
            driver.send('Input.dispatchTouchEvent', { type, touchPoints: at.map((x, id) => ({ x, y, id })) });
        await touch('touchStart', left);
        await touch('touchStart', left, right);
        for (const part of [0.2, 0.4, 0.6, 0.8, 1]) await touch('touchMove', left - 100 * part, right + 100 * part);
        await touch('touchEnd');
        const state = await link(page);
        const [from, to] = [Number(state.get('from')), Number(state.get('to'))];
        assert.ok(from > 500 && to > from && to - from < 0.7 * 9107, `${from} to ${to}`);
        assert.equal(state.get('mark'), null);
        // One finger chooses a range, as the mouse does.
        await touch('touchStart', left);
        for (const part of [0.5, 1]) await touch('touchMove', left + part * (right - left));
        await touch('touchEnd');
        assert.notEqual((await link(page)).get('mark'), null);
    }, options);
});

test('the pointer shows what it is on, and a click shows its stack', async () => {
    await inPage(pageOf(GPT), '#tab=blocks', async (page) => {
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
        assert.match(facts ?? '', /requested.*block size.*category.*because.*allocated.*entry/s);
        assert.match((await link(page)).get('allocation') ?? '', /^\d+$/);
    });
});

test('a search is shown everywhere, and a bad one says so', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        await page.keyboard.press('/');
        await page.keyboard.type('softmax');
        await page.waitForFunction(() => /^[\d,]+ found: .* of /.test(document.getElementById('found')?.textContent ?? ''));
        // At the cursor, which is at the peak.
        const matching = answer<Peak>('peak', GPT, '--include', 'softmax').devices[0].attribution;
        const filtered = matching.rows.filter(({ label }) => /filtered/.test(label)).reduce((sum, { bytes }) => sum + bytes, 0);
        const found = (await page.textContent('#found')) ?? '';
        assert.ok(found.endsWith(`: ${size(matching.total_bytes - filtered)} of ${size(matching.total_bytes)}`), `${found}, expected ${matching.total_bytes - filtered}`);
        await page.waitForSelector('#panel-table tr.found');
        const marked = await page.$$eval('#panel-table tr.found', (all) => all.length);
        const all = (await exact(page)).size;
        assert.ok(marked > 0 && marked < all, `${marked} of ${all}`);
        // A flag that JavaScript's regular expressions do not have.
        await page.fill('#search', '(?i)SOFTMAX');
        await page.waitForFunction(
            (before) => document.querySelectorAll('#panel-table tr.found').length === before,
            marked,
        );
        await page.fill('#search', 'soft(');
        await page.waitForSelector('#found.alarm');
        // The command also names the option.
        const said = await page.textContent('#found');
        assert.match(said ?? '', /^expected a regular expression: /);
        assert.ok(support.complaint('peak', GPT, '--include', 'soft(').endsWith(`: ${said}`), said ?? '');
        await page.waitForFunction(() => document.querySelectorAll('#panel-table tr.found').length === 0);
    });
});

test('a link shows the same again', async () => {
    let shown = '';
    await inPage(
        pageOf(GPT),
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
    await inPage(pageOf(GPT), shown.slice(shown.indexOf('#')), async (page) => {
        await ready(page);
        await rested(page);
        assert.equal(page.url(), shown);
    });
});
