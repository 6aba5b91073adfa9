/** Two instants, the range between them, and two recordings. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import * as support from './support.ts';
import { answer, drop, exact, fixture, inPage, link, pageOf, type Peak, picture, place, ready, root, settled } from './support.ts';

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const CHECKPOINTED = fixture('snapshots/gpt_train_ckpt/snapshot.pickle.gz');
const OOM = fixture('snapshots/oom/snapshot.pickle.gz');

after(support.close);

interface Held {
    total_bytes: number;
    rows: { label: string; bytes: number }[];
}

/** Exact bytes, as the page writes them in parentheses. */
function inBrackets(bytes: number): string {
    return `(${bytes.toLocaleString('en-US')}`;
}

test('two instants show what grew', async () => {
    await inPage(pageOf(GPT), '#at=2940&mark=100', async (page) => {
        await ready(page);
        const at = (entry: number) => answer<Peak>('peak', GPT, '--at', `entry:${entry}`).devices[0].attribution;
        const [before, after] = [at(99), at(2939)];
        const rows = await exact(page);
        const change = [...rows.values()].reduce((sum, bytes) => sum + bytes, 0);
        assert.equal(change, after.total_bytes - before.total_bytes);
        for (const row of after.rows) {
            const was = before.rows.find((each) => each.label === row.label)?.bytes ?? 0;
            assert.equal(rows.get(row.label), row.bytes - was, row.label);
        }
    });
});

test('a dragged range shows what was allocated, freed and survived in it, and sums up', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        await page.mouse.move(...(await place(page, 0.4, 0.4)));
        await page.mouse.down();
        await page.mouse.move(...(await place(page, 0.6, 0.4)), { steps: 5 });
        await page.mouse.up();
        await settled(page);
        const state = await link(page);
        const [from, to] = [Number(state.get('mark')), Number(state.get('at'))];
        assert.ok(from > 2000 && to > from + 1000 && to < 7000, `${from} to ${to}`);
        assert.equal(state.get('from'), null, 'what is seen stays');
        const at = (instant: number) =>
            answer<{ devices: { attribution: Held }[] }>('peak', GPT, '--at', `entry:${instant - 1}`, '--device', '0')
                .devices[0].attribution;
        const [start, end] = [at(from), at(to)];
        const heads = await page.$$eval('#panel-table thead th', (cells) => cells.map((cell) => cell.textContent));
        assert.deepEqual(heads.slice(2, 4), ['allocated', 'freed']);
        assert.deepEqual(heads.slice(5, 7), ['change', 'survived']);
        // The exact bytes of each row, by column.
        const cells = await page.$$eval('#panel-table tbody tr', (rows) =>
            rows.map((row) => ({
                label: (row as HTMLElement).dataset.label ?? '',
                bytes: [...row.children].slice(1, 7).map((cell) => {
                    return Number((cell as HTMLElement).title.replace(/[, a-z]/g, ''));
                }),
            })),
        );
        const held = (rows: Held['rows'], label: string) => rows.find((row) => row.label === label)?.bytes ?? 0;
        for (const { label, bytes } of cells) {
            const [was, allocated, freed, is, change, survived] = bytes;
            assert.equal(was + allocated - freed, is, label);
            assert.equal(is - was, change, label);
            assert.ok(survived <= allocated && survived <= is, label);
            assert.deepEqual([was, is], [held(start.rows, label), held(end.rows, label)], label);
        }
        const sum = (column: number) => cells.reduce((total, { bytes }) => total + bytes[column], 0);
        assert.deepEqual([sum(0), sum(3)], [start.total_bytes, end.total_bytes]);
        const where = (await page.textContent('#where')) ?? '';
        assert.match(where, /^range entry [\d,]+ to entry [\d,]+ · [\d,]+ entries in .* \+ .* allocated − .* freed = /);
        // Sorting by a column puts its largest value first.
        await page.click('#panel-table thead >> text=allocated');
        await settled(page);
        const first = cells.reduce((most, row) => (row.bytes[1] > most.bytes[1] ? row : most));
        assert.equal(await page.getAttribute('#panel-table tbody tr', 'data-label'), first.label);
        // The flame graph shows the same bytes.
        await page.click('#tab-flame');
        for (const [button, column] of [
            ['allocated in it', 1],
            ['freed in it', 2],
            ['survived', 5],
        ] as const) {
            await page.click(`#panel-flame .tools >> text=${button}`);
            await settled(page);
            const canvas = page.locator('#panel-flame canvas');
            await canvas.focus();
            await canvas.press('Enter');
            await page.mouse.click(...(await place(page, 0.5, 0, '#panel-flame').then(([x, y]) => [x, y + 12] as const)));
            await settled(page);
            const facts = (await page.textContent('#details dl')) ?? '';
            assert.ok(facts.includes(`exactly${sum(column).toLocaleString('en-US')} bytes`), `${button}: ${facts}`);
        }
        assert.equal((await link(page)).get('flame'), 'survived');
        await page.keyboard.press('m');
        await settled(page);
        assert.equal(await page.locator('#panel-flame .tools').isHidden(), true);
        assert.equal((await link(page)).get('mark'), null);
        // On the axis, a drag selects a range without Shift.
        const box = await page.locator('#timelines canvas').boundingBox();
        await page.mouse.move(box!.x + 300, box!.y + box!.height - 60);
        await page.mouse.down();
        await page.mouse.move(box!.x + 500, box!.y + box!.height - 60, { steps: 3 });
        await page.mouse.up();
        assert.notEqual((await link(page)).get('mark'), null);
    });
});

test('a second file is compared, as memviz diff does', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        await drop(page, OOM);
        await page.waitForFunction(() => document.querySelectorAll('#timelines canvas').length === 2);
        await ready(page, 2);
        interface Diff {
            devices: { rows: { label: string; delta_bytes: number }[] }[];
        }
        const wanted = answer<Diff>('diff', GPT, OOM).devices[0].rows;
        const rows = await exact(page);
        for (const row of wanted) {
            if (row.label !== '(other)') assert.equal(rows.get(row.label) ?? 0, row.delta_bytes, row.label);
        }
        assert.match((await page.textContent('#verdict')) ?? '', /B is .* higher/);
        for (const tab of ['blocks', 'segments']) {
            await page.click(`#tab-${tab}`);
            await settled(page);
            assert.equal(await page.locator(`#panel-${tab} canvas`).count(), 2);
        }
    });
});

test('a line that moved is one row, as in memviz diff', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        await drop(page, CHECKPOINTED);
        await page.waitForFunction(() => document.querySelectorAll('#timelines canvas').length === 2);
        await ready(page, 2);
        interface Diff {
            devices: { rows: { label: string; base_label: string | null; delta_bytes: number }[] }[];
        }
        const moved = answer<Diff>('diff', GPT, CHECKPOINTED).devices[0].rows.filter((row) => row.base_label !== null);
        assert.ok(moved.length > 0);
        const rows = await exact(page);
        for (const row of moved) {
            assert.equal(rows.get(row.label), row.delta_bytes, row.label);
            assert.equal(rows.get(row.base_label!), undefined, row.base_label!);
        }
        assert.match((await page.textContent('#panel-table')) ?? '', /cases\.py:\d+ train_steps \(was line \d+\)/);
    });
});

test('the difference of two instants is a flame graph with the sums of the table', async () => {
    await inPage(pageOf(GPT), '#at=2940&mark=100&tab=flame&flame=difference', async (page) => {
        await ready(page);
        const at = (entry: number) => answer<Peak>('peak', GPT, '--at', `entry:${entry}`).devices[0].attribution;
        const [before, after] = [at(99).total_bytes, at(2939).total_bytes];
        const facts = await root(page);
        for (const bytes of [before, after, after - before]) assert.ok(facts.includes(inBrackets(bytes)), facts);
        assert.match((await page.textContent('#panel-flame .tools')) ?? '', /red grew, blue shrank/);
    });
});

test('the difference of two recordings is a flame graph, and they diverge where memviz diff says', async () => {
    await inPage(pageOf(GPT), '', async (page) => {
        await ready(page);
        await drop(page, OOM);
        await page.waitForFunction(() => document.querySelectorAll('#timelines canvas').length === 2);
        await ready(page, 2);
        await page.click('#tab-flame');
        await settled(page);
        assert.equal(await page.locator('#panel-flame canvas:visible').count(), 1);
        const held = [GPT, OOM].map((file) => answer<Peak>('peak', file).devices[0].attribution.total_bytes);
        const facts = await root(page);
        for (const bytes of [...held, held[1] - held[0]]) assert.ok(facts.includes(inBrackets(bytes)), facts);
        await page.click('#panel-flame .tools >> text=side by side');
        await settled(page);
        assert.equal(await page.locator('#panel-flame canvas:visible').count(), 2);
        // The picture of the command says the same, with other names for the two recordings.
        const [, alike, base, other] = picture(GPT, OOM).match(/(the first \d+ requests are the same; then) the base (.*?\)), and the new recording (.*?\))/)!;
        const where = (await page.textContent('#where')) ?? '';
        assert.ok(where.includes(`${alike} A ${base}, B ${other}`), `${alike} ${base}, ${other}: ${where}`);
        await page.click('#where >> text=first difference');
        await settled(page);
        const [, a, b] = where.match(/A requests .*?\(entry ([\d,]+)\), B requests .*?\(entry ([\d,]+)\)/) ?? [];
        const state = await link(page);
        assert.deepEqual([state.get('at'), state.get('at2')].map((at) => Number(at) - 1), [a, b].map(Number));
    });
});
