/** Blocks that keep free memory from being released, in the segments. */

import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { bytes as size } from '../../src/format.ts';
import * as support from './support.ts';
import { answer, fixture, inPage, pageFile, ready, settled } from './support.ts';

interface Fragmented {
    devices: { pinning: { label: string; worst_block_bytes: number }[] }[];
}

const FRAGMENTED = fixture('snapshots/fragmented/snapshot.pickle.gz');

after(support.close);

test('holders of stranded memory are outlined, with the bytes of memviz fragmentation', async () => {
    const entry = answer<{ devices: { peak: { entry: number } }[] }>('peak', FRAGMENTED).devices[0].peak.entry;
    const [{ pinning }] = answer<Fragmented>('fragmentation', FRAGMENTED, '--at', `entry:${entry}`, '--top', '100').devices;
    const worst = pinning.reduce((most, row) => (row.worst_block_bytes > most.worst_block_bytes ? row : most));
    // High enough for all segments at once.
    const viewport = { width: 1280, height: 6500 };
    await inPage(
        pageFile(FRAGMENTED),
        `#tab=segments&at=${entry + 1}`,
        async (page) => {
            await ready(page);
            await settled(page);
            assert.match((await page.textContent('.segments .tools')) ?? '', /keeps more free memory reserved than it holds/);
            // The text at the pointer at points all over the segments, and whether there is an outline.
            const said = await page.evaluate(() => {
                const canvas = document.querySelector<HTMLCanvasElement>('#panel-segments canvas')!;
                const { left, top, width, height } = canvas.getBoundingClientRect();
                const ratio = canvas.width / width;
                const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
                const isDark = (x: number, y: number) => {
                    const at = 4 * (Math.round(y * ratio) * canvas.width + Math.round(x * ratio));
                    return data[at] < 80 && data[at + 1] < 80 && data[at + 2] < 80;
                };
                // Letters have no stroke as long as this.
                const isOutline = (x: number, y: number) => [...Array(13).keys()].every((by) => isDark(x + by - 6, y));
                const found = new Map<string, boolean>();
                for (let y = 6; y < height; y += 12) {
                    for (let x = 180; x < width; x += 20) {
                        const event = { clientX: left + x, clientY: top + y, bubbles: true, pointerId: 1, pointerType: 'mouse' };
                        canvas.dispatchEvent(new PointerEvent('pointermove', event));
                        const tip = document.querySelector('.tip:not([hidden])')?.textContent ?? '';
                        if (!tip.includes('of free memory from being released')) continue;
                        const around = [...Array(19).keys()].some((by) => isOutline(x, y + by - 9));
                        found.set(tip, (found.get(tip) ?? false) || around);
                    }
                }
                return [...found];
            });
            const holders = said.map(([tip, isOutlined]) => {
                const [, held] = /([\d.]+ (?:bytes|KiB|MiB|GiB)) \(([\d,]+)\), in use/.exec(tip) ?? [];
                const [, kept] = /keeps ([\d.]+ (?:bytes|KiB|MiB|GiB)) of free memory/.exec(tip)!;
                return { tip, held, kept, isOutlined };
            });
            const most = holders.find(({ kept, tip }) => kept === size(worst.worst_block_bytes) && tip.includes(worst.label));
            assert.ok(most, `${size(worst.worst_block_bytes)} at ${worst.label}: ${holders.map(({ tip }) => tip).join('\n\n')}`);
            assert.ok(most.isOutlined, most.tip);
            assert.ok(holders.some(({ isOutlined }) => !isOutlined), 'those that keep less than they hold are not outlined');
        },
        { viewport },
    );
});
