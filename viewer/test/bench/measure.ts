/** Measures in Chromium how fast the page is with a recording, and how much memory its tab uses. */

import { existsSync, readFileSync } from 'node:fs';
import { chromium, type Browser, type Page } from 'playwright-core';
import { CHROMIUM, close, settled, written } from '../browser/support.ts';

const [recording] = process.argv.slice(2);
if (!recording || !existsSync(recording)) {
    console.error('expected a recording, found none; usage: benches/viewer FILE');
    process.exit(2);
}

/** Width of the first column of the output, in characters. */
const WIDTH = 32;

/** Times between frames during an action, in milliseconds, ascending. */
async function frames(page: Page, act: () => Promise<void>): Promise<number[]> {
    await page.evaluate(() => {
        const times: number[] = [];
        let last = performance.now();
        const next = (now: number) => {
            times.push(now - last);
            last = now;
            if (document.body.dataset.measured !== 'over') requestAnimationFrame(next);
        };
        document.body.dataset.measured = '';
        requestAnimationFrame(next);
        (window as unknown as { frames: number[] }).frames = times;
    });
    await act();
    const times = await page.evaluate(() => {
        document.body.dataset.measured = 'over';
        return (window as unknown as { frames: number[] }).frames.slice(1);
    });
    return times.sort((a, b) => a - b);
}

/** Resident memory of the tab's process, its maximum, and its proportional set size, in MiB. */
async function memory(browser: Browser): Promise<{ resident: number; highest: number; own: number }> {
    const session = await browser.newBrowserCDPSession();
    const { processInfo } = (await session.send('SystemInfo.getProcessInfo')) as {
        processInfo: { type: string; id: number }[];
    };
    const read = (id: number, file: string, key: string) => {
        const found = new RegExp(`${key}:\\s+(\\d+)`).exec(readFileSync(`/proc/${id}/${file}`, 'utf8'));
        return Number(found?.[1] ?? Number.NaN) / 1024;
    };
    const all = processInfo
        .filter((each) => each.type === 'renderer')
        .map(({ id }) => ({
            resident: read(id, 'status', 'VmRSS'),
            highest: read(id, 'status', 'VmHWM'),
            own: read(id, 'smaps_rollup', 'Pss'),
        }));
    return all.reduce((most, each) => (each.resident > most.resident ? each : most));
}

function line(what: string, times: number[]): void {
    const at = (part: number) => times[Math.min(times.length - 1, Math.floor(part * times.length))].toFixed(1);
    console.log(
        `${what.padEnd(WIDTH)} p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, longest ${at(1)} ms of ${times.length} frames`,
    );
}

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
await page.goto(`file://${written('view', recording)}`);
await page.waitForFunction(() => performance.getEntriesByName('memviz:ready').length > 0, undefined, {
    timeout: 120_000,
});
const ready = await page.evaluate(() => performance.getEntriesByName('memviz:ready')[0].startTime);
console.log(`${'ready'.padEnd(WIDTH)} ${(ready / 1000).toFixed(2)} s after opening`);
await settled(page);
console.log(
    `${'findings'.padEnd(WIDTH)} ${((await page.evaluate(() => performance.now())) / 1000).toFixed(2)} s after opening`,
);
const box = await page.locator('#timelines canvas').boundingBox();
if (!box) throw new Error('the timeline is not shown');
const [x, y] = [box.x + 0.6 * box.width, box.y + 0.5 * box.height];
for (const view of ['table', 'blocks', 'tracks', 'pinned tracks']) {
    const tab = view.split(' ').at(-1)!;
    await page.click(`#tab-${tab}`);
    // A pinned track moves up to the pinned ones, and the next track becomes the first of the rest.
    const pins = view === tab ? 0 : await page.locator('.tracks .scrolled .pin').count();
    for (let pin = 0; pin < pins; pin++) {
        await page.locator('.tracks .scrolled .pin').first().dispatchEvent('click');
        await settled(page);
    }
    await page.keyboard.press('0');
    await settled(page);
    await page.mouse.move(x, y);
    const wheel = (by: number) => async () => {
        for (let turn = 0; turn < 40; turn++) {
            await page.mouse.wheel(0, by);
            await page.waitForTimeout(20);
        }
    };
    line(`zooming in, with ${view}`, await frames(page, wheel(-100)));
    const drag = async () => {
        await page.mouse.down();
        for (let step = 0; step < 100; step++) {
            await page.mouse.move(x - 6 * step, y);
            await page.waitForTimeout(12);
        }
        await page.mouse.up();
    };
    line(`panning, with ${view}`, await frames(page, drag));
    line(`zooming out, with ${view}`, await frames(page, wheel(100)));
    await page.keyboard.down('Shift');
    await page.mouse.move(x, y);
    line(`a range, with ${view}`, await frames(page, drag));
    await page.keyboard.up('Shift');
    const start = performance.now();
    await settled(page);
    console.log(`${'answers about the range'.padEnd(WIDTH)} ${(performance.now() - start).toFixed(0)} ms after it`);
    await page.keyboard.press('m');
}
await page.click('#tab-events');
await settled(page);
await page.hover('.events .list');
const scroll = async () => {
    for (let turn = 0; turn < 60; turn++) {
        await page.mouse.wheel(0, 4000);
        await page.waitForTimeout(20);
    }
};
line('scrolling events', await frames(page, scroll));
await page.focus('.events .list');
const walk = async () => {
    for (let turn = 0; turn < 60; turn++) await page.keyboard.press('ArrowDown');
};
line('from event to event', await frames(page, walk));
const play = page.locator('.events [aria-label="Steps"] button').nth(1);
line(
    'playing events',
    await frames(page, async () => {
        await play.click();
        await page.waitForTimeout(4000);
        await play.click();
    }),
);
await page.click('#where >> text=peak');
await settled(page);

/** Scrolls in a view, and moves the pointer over it. */
async function scrollAndPoint(tab: string, called = tab): Promise<void> {
    const shown = await page.locator(`#panel-${tab} canvas`).first().boundingBox();
    if (!shown) throw new Error(`${tab} is not shown`);
    await page.mouse.move(shown.x + 0.4 * shown.width, shown.y + 0.4 * shown.height);
    const scrolled = async () => {
        for (let turn = 0; turn < 60; turn++) {
            await page.mouse.wheel(0, turn < 30 ? 60 : -60);
            await page.waitForTimeout(20);
        }
    };
    line(`scrolling ${called}`, await frames(page, scrolled));
    const point = async () => {
        for (let step = 0; step < 60; step++) {
            await page.mouse.move(shown.x + (0.2 + 0.01 * step) * shown.width, shown.y + 40 + 2 * step);
            await page.waitForTimeout(12);
        }
    };
    line(`pointing at ${called}`, await frames(page, point));
}

/** How long it takes until the answers have arrived and are drawn. */
async function timed(what: string, act: () => Promise<void>): Promise<void> {
    const start = performance.now();
    await act();
    await settled(page);
    console.log(`${what.padEnd(WIDTH)} ${(performance.now() - start).toFixed(0)} ms`);
}

for (const tab of ['segments', 'flame']) {
    if ((await page.locator(`#tab-${tab}`).count()) === 0) continue;
    await page.click(`#tab-${tab}`);
    await settled(page);
    await scrollAndPoint(tab);
}
// The difference of two instants, at several distances along the axis.
await page.mouse.move(x, box.y + box.height - 60);
await page.mouse.down();
await page.mouse.move(x - 300, box.y + box.height - 60, { steps: 5 });
await page.mouse.up();
await settled(page);
await timed('difference of two instants', () => page.click('#panel-flame .tools >> text=difference'));
await scrollAndPoint('flame', 'their difference');
const moved = async () => {
    await page.locator('#timelines canvas').focus();
    for (let press = 0; press < 40; press++) await page.keyboard.press('ArrowRight');
};
line('moving an end of the range', await frames(page, moved));
await settled(page);
await page.keyboard.press('m');
// What if: from moving the slider until the curve and the figures are drawn.
if ((await page.locator('#tab-whatif').count()) > 0) {
    await page.click('#tab-whatif');
    await settled(page);
    const slider = page.locator('.whatif [aria-label="Memory of the device"]');
    await slider.focus();
    const times = [];
    for (let press = 0; press < 8; press++) {
        const start = performance.now();
        await slider.press('ArrowLeft');
        await settled(page);
        times.push(performance.now() - start);
    }
    times.sort((a, b) => a - b);
    console.log(`${'what if, from key to figures'.padEnd(WIDTH)} p50 ${times[4].toFixed(0)} ms, longest ${times[7].toFixed(0)} ms of ${times.length}`);
}
for (const tab of ['segments', 'flame', 'findings']) {
    const button = page.locator(`#tab-${tab}`);
    if ((await button.count()) === 0) continue;
    await button.click();
    await settled(page);
}
const { resident, highest, own } = await memory(browser);
console.log(
    `${'memory of the tab'.padEnd(WIDTH)} ${resident.toFixed(0)} MiB resident, ${highest.toFixed(0)} MiB at most; ${own.toFixed(0)} MiB without what is shared`,
);
// A second recording: the same file, at another place.
const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('#actions >> text=Compare with…')]);
await timed('second recording', async () => {
    await chooser.setFiles(recording);
    await page.waitForFunction(() => performance.getEntriesByName('memviz:ready').length > 1, undefined, { timeout: 120_000 });
});
await page.locator('#timelines canvas').nth(1).click({ position: { x: 0.3 * box.width, y: 60 } });
await settled(page);
await timed('difference of two recordings', () => page.click('#tab-flame'));
await scrollAndPoint('flame', 'that difference');
await page.mouse.move(x, y);
const wheels = async () => {
    for (let turn = 0; turn < 80; turn++) {
        await page.mouse.wheel(0, turn < 40 ? -100 : 100);
        await page.waitForTimeout(20);
    }
};
line('zooming, with two recordings', await frames(page, wheels));
await browser.close();
await close();
