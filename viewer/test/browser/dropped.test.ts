/** Files and folders that are dropped onto the page. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after } from 'node:test';
import type { Page } from 'playwright-core';
import * as support from './support.ts';
import { fixture, inPage, pageFile, ready } from './support.ts';

after(support.close);

/** The files of a folder by name, and the folders in it. */
interface Folder {
    [name: string]: string | Folder;
}

/**
 * Drops a folder, whose files are given as base64. No driver can drop a folder, so the event contains what browsers would pass:
 * handles, as in Chromium, or entries, which list a folder in several parts.
 */
async function dropFolder(page: Page, folder: Folder, hasHandles: boolean): Promise<void> {
    await page.evaluate(
        ([folder, hasHandles]) => {
            const file = (text: string, name: string) => new File([Uint8Array.from(atob(text), (char) => char.charCodeAt(0))], name);
            const handle = (name: string, content: string | Folder): object =>
                typeof content === 'string'
                    ? { kind: 'file', name, getFile: async () => file(content, name) }
                    : {
                          kind: 'directory',
                          name,
                          async *values() {
                              for (const [child, of] of Object.entries(content)) yield handle(child, of);
                          },
                      };
            const entry = (name: string, content: string | Folder): object => {
                if (typeof content === 'string')
                    return { isFile: true, isDirectory: false, name, file: (done: (file: File) => void) => done(file(content, name)) };
                const createReader = () => {
                    const rest = Object.entries(content).map(([child, of]) => entry(child, of));
                    return { readEntries: (done: (some: object[]) => void) => done(rest.splice(0, 2)) };
                };
                return { isFile: false, isDirectory: true, name, createReader };
            };
            const item = {
                kind: 'file',
                getAsFile: () => null,
                webkitGetAsEntry: () => entry('run', folder),
                ...(hasHandles ? { getAsFileSystemHandle: async () => handle('run', folder) } : {}),
            };
            const event = new Event('drop', { bubbles: true, cancelable: true });
            Object.defineProperty(event, 'dataTransfer', { value: { types: ['Files'], items: [item] } });
            document.body.dispatchEvent(event);
        },
        [folder, hasHandles] as const,
    );
}

test('a dropped folder of ranks is opened with the folders in it, without files that belong to no run', async () => {
    const rank = (number: number) => readFileSync(fixture(`snapshots/ranks8/rank${number}.pickle.gz`)).toString('base64');
    const text = Buffer.from('none of these').toString('base64');
    const folder = {
        'rank0.pickle.gz': rank(0),
        'notes.txt': text,
        node1: { 'rank1.pickle.gz': rank(1), 'rank2.pickle.gz': rank(2), 'log.txt': text },
        '.cache': { 'rank3.pickle.gz': rank(3) },
    };
    for (const hasHandles of [true, false]) {
        await inPage(pageFile(null), '', async (page) => {
            await page.waitForSelector('#welcome:not([hidden])');
            await dropFolder(page, folder, hasHandles);
            await ready(page);
            assert.match((await page.textContent('#file')) ?? '', / and 2 more$/);
            await page.click('#tab-tracks');
            await support.settled(page);
            const heads = await page.$$eval('.tracks .scrolled .track.head', (all) => all.map((each) => each.textContent ?? ''));
            assert.equal(heads.length, 3);
            for (const number of [0, 1, 2]) assert.ok(heads.some((head) => head.includes(`rank${number}.pickle.gz`)), String(heads));
        });
    }
});

test('a dropped folder of a program shows its lines in stacks', async () => {
    await inPage(pageFile(fixture('snapshots/gpt_train/snapshot.pickle.gz'), 'snapshot.pickle.gz'), '#tab=table', async (page) => {
        await ready(page);
        await page.locator('#panel-table tbody tr').first().click();
        await support.settled(page);
        const own = page.locator('#details ol.stack li.own').first();
        const [, file, line] = /^(.*):(\d+)$/.exec((await own.getAttribute('title')) ?? '')!;
        const lines = Array.from({ length: Number(line) }, (_, at) => (at + 1 === Number(line) ? 'y = layer(x)' : ''));
        await dropFolder(page, { [file.split('/').at(-1)!]: Buffer.from(lines.join('\n')).toString('base64') }, false);
        await page.waitForSelector('#details code.source');
        assert.equal(await page.locator('#details li.own code.source').first().textContent(), 'y = layer(x)');
    });
});
