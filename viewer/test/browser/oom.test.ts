/** Failed requests. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after } from 'node:test';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, fixture, inPage, link, onlyChromium, pageOf, ready, settled, wide } from './support.ts';

const OOM = fixture('snapshots/oom/snapshot.pickle.gz');

after(support.close);

test('a failed request is marked at the end of the curve', async () => {
    await inPage(pageOf(OOM), '', async (page) => {
        await ready(page);
        const { height, top } = await page.evaluate(() => {
            const canvas = document.querySelector<HTMLCanvasElement>('#timelines canvas')!;
            const { data, width, height } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
            const rows = new Set<number>();
            // Its fill starts at the bottom, left of the line from top to bottom.
            for (let at = 0; at < data.length; at += 4) {
                const [red, green, blue] = data.subarray(at, at + 3);
                const x = (at / 4) % width;
                if (x > width - 40 && red > 220 && green > 150 && green < 215 && Math.abs(green - blue) < 20) {
                    rows.add(Math.floor(at / 4 / width));
                }
            }
            return { height: rows.size / height, top: Math.min(...rows) };
        });
        assert.ok(height > 0.05 && height < 0.2 && top > 0, `${height}, ${top}`);
    });
});

test('the page opens where the memory before the failed request is more than two pixels wide', async () => {
    await inPage(pageOf(OOM), '', async (page) => {
        await ready(page);
        const seen = await wide(page, 0.5);
        assert.ok(seen > 30, `${seen} pixels`);
        assert.deepEqual([...(await link(page)).keys()], []);
        await page.keyboard.press('0');
        assert.equal((await link(page)).get('from'), '0');
    });
    await inPage(pageOf(OOM), '#from=0&to=6364', async (page) => {
        await ready(page);
        const seen = await wide(page, 0.5);
        assert.ok(seen < 10, `${seen} pixels of the whole run`);
    });
});

test('the verdict is shown whole, whatever the width of the window', async () => {
    const [{ verdict }] = answer<{ devices: { verdict: string }[] }>('triage', OOM).devices;
    for (const width of [1280, 900, 420]) {
        await inPage(pageOf(OOM), '', async (page) => {
            await ready(page);
            await page.waitForFunction((text) => document.querySelector('#verdict')?.textContent === text, verdict);
            const [of, inner] = await page.$eval('#verdict', (element) => {
                const range = document.createRange();
                range.selectNodeContents(element);
                const edges = ({ right, bottom }: DOMRect) => [right, bottom];
                return [edges(element.getBoundingClientRect()), edges(range.getBoundingClientRect())];
            });
            assert.ok(inner[0] <= of[0] + 1 && inner[1] <= of[1] + 1, `${width}: ${inner} in ${of}`);
        }, { viewport: { width, height: 860 } });
    }
});

test('the page opens at the failed request, which is shown with the free blocks in the segments', onlyChromium('downloads'), async () => {
    interface Oom {
        devices: {
            ooms: {
                requested_bytes: number;
                serving: { inactive_bytes: number; largest_usable_block_bytes: number; free_block_count: number };
            }[];
        }[];
    }
    const [{ requested_bytes, serving }] = answer<Oom>('oom', OOM).devices[0].ooms;
    await inPage(pageOf(OOM), '#tab=segments', async (page) => {
        await ready(page);
        assert.match((await page.textContent('#where')) ?? '', /^at entry 6,362 of 6,363/);
        const [download] = await Promise.all([page.waitForEvent('download'), page.click('#actions >> text=SVG')]);
        const svg = readFileSync(await download.path()).toString();
        assert.ok(svg.includes(`The request that failed: ${size(requested_bytes)}`));
        const { inactive_bytes, largest_usable_block_bytes, free_block_count } = serving;
        const free = `Free in its pool and stream: ${size(inactive_bytes)} in ${free_block_count} blocks`;
        assert.ok(svg.includes(`${free}; the largest that it can use is ${size(largest_usable_block_bytes)}`), free);
        // Rows with address and size, then packed rows.
        assert.match(svg, />0x[0-9a-f]+</);
        await page.click('.segments >> text=packed');
        await settled(page);
        assert.equal((await link(page)).get('packed'), '1');
    });
});
