/** The page as a file: what it contains, what it saves, and what is opened in it. */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import * as support from './support.ts';
import { drop, fixture, inPage, onlyChromium, pageFile, pageOf, place, ready, settled, site } from './support.ts';

const GPT = fixture('snapshots/gpt_train/snapshot.pickle.gz');
const OOM = fixture('snapshots/oom/snapshot.pickle.gz');

after(support.close);

test('the licenses of the libraries are in the page', async () => {
    await inPage(pageFile(null), '', async (page) => {
        await page.click('#actions >> text=?');
        await page.click('#help summary');
        const terms = await page.textContent('#help pre');
        assert.match(terms ?? '', /serde_json [\d.]+ \(MIT OR Apache-2\.0\)/);
        assert.match(terms ?? '', /Permission is hereby granted/);
    });
});

test('dark is dark, on the page and in its pictures', onlyChromium('a color scheme'), async () => {
    const look = async (colorScheme: 'light' | 'dark') => {
        let seen: number[] = [];
        await inPage(
            pageOf(GPT),
            '',
            async (page) => {
                await ready(page);
                seen = await page.evaluate(() => {
                    const ground = getComputedStyle(document.body).backgroundColor.match(/\d+/g)!.map(Number);
                    const canvas = document.querySelector<HTMLCanvasElement>('#timelines canvas')!;
                    return [
                        ...ground.slice(0, 3),
                        ...canvas.getContext('2d')!.getImageData(1, 1, 1, 1).data.slice(0, 3),
                    ];
                });
            },
            { colorScheme },
        );
        return seen;
    };
    assert.deepEqual(await look('light'), [255, 255, 255, 255, 255, 255]);
    assert.deepEqual(await look('dark'), [13, 17, 23, 13, 17, 23]);
});

test('the view is saved as SVG and PNG', onlyChromium('downloads'), async () => {
    await inPage(pageFile(OOM, path.basename(OOM)), '#tab=blocks&by=category', async (page) => {
        await ready(page);
        const keep = async (kind: string) => {
            const [download] = await Promise.all([
                page.waitForEvent('download'),
                page.click(`#actions >> text=${kind}`),
            ]);
            // The name of the recording with the extension of the picture.
            assert.equal(download.suggestedFilename(), `${path.basename(OOM)}.${kind.toLowerCase()}`);
            return readFileSync(await download.path());
        };
        const svg = (await keep('SVG')).toString();
        const text = await page.evaluate((source) => {
            const parsed = new DOMParser().parseFromString(source, 'image/svg+xml');
            return parsed.querySelector('parsererror') ? 'not well formed' : (parsed.documentElement.textContent ?? '');
        }, svg);
        assert.match(text, /peak 6\.65 GiB/);
        assert.match(text, /OOM: 1000\.00 MiB/);
        assert.ok(!/<script|foreignObject|href/i.test(svg));
        assert.deepEqual([...(await keep('PNG')).subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    });
});

test('hostile names are only displayed', async () => {
    const markup = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
    const names = [markup, 'a\u202egnp.exe', 'line\nbreak\u0007\u001b[31m', '"]}\'--></script>', 'x'.repeat(100_000)];
    const events: object[] = [];
    let total = 0;
    names.forEach((name, at) => {
        const ts = 1000 * (at + 1);
        const common = { pid: 1, tid: 1 };
        events.push({ ph: 'X', cat: 'user_annotation', name: `in ${name}`, ts, dur: 900, ...common });
        events.push({ ph: 'X', cat: 'cpu_op', name: `aten::${name}`, ts: ts + 10, dur: 500, ...common });
        total += 1 << 20;
        const args = {
            'Device Type': 1,
            'Device Id': 0,
            Addr: 4096 * (at + 1),
            Bytes: 1 << 20,
            'Total Allocated': total,
            'Total Reserved': 20 << 20,
        };
        events.push({ ph: 'i', cat: 'cpu_instant_event', s: 't', name: '[memory]', ts: ts + 100, ...common, args });
    });
    const recording = support.scratch('hostile.json', JSON.stringify({ schemaVersion: 1, traceEvents: events }));
    const file = pageFile(recording, `${markup}"><b>\u202e`);
    for (const by of ['operator', 'annotation', 'stack']) {
        for (const tab of ['table', 'blocks', 'flame', 'events', 'findings']) {
            await inPage(file, `#by=${by}&tab=${tab}`, async (page) => {
                await ready(page);
                assert.equal(
                    await page.textContent('[data-figure="peak-allocated"] .exact'),
                    (5 << 20).toLocaleString('en-US'),
                );
                assert.equal(await page.locator('img, b, #panels script').count(), 0);
                for (const across of [0.1, 0.3, 0.5, 0.7, 0.9])
                    await page.mouse.click(...(await place(page, across, 0.7)));
                await settled(page);
                assert.ok(
                    !/[\u0007\u001b\u202e]/.test(await page.innerText('body')),
                    'hidden characters are written out',
                );
                assert.ok((await page.innerText('body')).length < 20_000);
                const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
                assert.ok(wide <= 0, `the page is ${wide} pixels too wide`);
            });
        }
    }
});

test('a damaged recording shows what the command line says', async () => {
    for (const name of [
        'truncated-in-device-traces.pickle',
        'random-bytes.bin',
        'wrong-type-frames-int.pickle',
        'gzip-corrupt.pickle.gz',
        'not-a-snapshot-model.pickle',
    ]) {
        const recording = fixture(`malformed/${name}`);
        await inPage(pageFile(recording), '', async (page) => {
            await page.waitForSelector('#alarm:not([hidden])');
            assert.equal(await page.textContent('#alarm'), support.complaint('peak', recording));
        });
    }
});

test('a static site has an empty page and samples', async () => {
    const folder = site();
    await inPage(path.join(folder, 'index.html'), '', async (page) => {
        await page.waitForSelector('#welcome:not([hidden])');
        const links = page.locator('.samples a');
        const pages = await links.evaluateAll((all) => all.map((link) => link.getAttribute('href')));
        const written = readdirSync(folder).filter((name) => name.endsWith('.html') && name !== 'index.html');
        assert.deepEqual([...pages].sort(), written.sort());
        await links.first().click();
        await ready(page);
        assert.equal(await page.textContent('#file'), 'snapshot.pickle.gz');
        assert.ok(await page.isHidden('#welcome'));
    });
});

test('an empty page opens a dropped file', async () => {
    await inPage(pageFile(null), '', async (page) => {
        await page.waitForSelector('#welcome:not([hidden])');
        await drop(page, GPT);
        await ready(page);
        assert.equal(await page.textContent('[data-figure="peak-allocated"] .exact'), '4,453,794,816');
        assert.ok(await page.isHidden('#welcome'));
    });
});
