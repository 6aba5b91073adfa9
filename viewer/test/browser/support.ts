/** A browser, pages made as `memviz view` makes them, and the command line to compare with. */

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { type Browser, type BrowserContextOptions, chromium, firefox, type Page } from 'playwright-core';
import { encoded } from '../encoded.ts';

/** The root of the project. */
export const ROOT = process.env.MEMVIZ_ROOT ?? path.resolve('..');
const BINARY = process.env.MEMVIZ_BINARY ?? path.join(ROOT, 'target/debug/memviz');
export const CHROMIUM =
    process.env.CHROMIUM ?? (existsSync('/usr/bin/chromium') ? '/usr/bin/chromium' : '/usr/bin/google-chrome');
/** The browser that the tests run in. */
export const isFirefox = process.env.MEMVIZ_BROWSER === 'firefox';
const SCRATCH = mkdtempSync(path.join(tmpdir(), 'memviz-viewer-'));

export function fixture(name: string): string {
    return path.join(ROOT, 'fixtures', name);
}

/** A file in the scratch directory, which is removed at the end. */
export function scratch(name: string, content: string | Buffer): string {
    const file = path.join(SCRATCH, name);
    writeFileSync(file, content);
    return file;
}

/** The part of `memviz peak --json` that tests compare with. */
export interface Peak {
    devices: {
        device: number;
        maxima: Record<string, number>;
        peak: { entry: number };
        attribution: { total_bytes: number; rows: { label: string; bytes: number; blocks: number }[] };
    }[];
}

/** The answer of a command as JSON. */
export function answer<T>(...args: string[]): T {
    return JSON.parse(
        execFileSync(BINARY, [...args, '--format', 'json'], { encoding: 'utf8', maxBuffer: 1 << 28 }),
    ) as T;
}

/** The page that viewer/build has made, with its engine: the binary embeds those of the last release. */
function emptyPage(): string {
    const [page, engine] = ['view.html.gz', 'engine.wasm.gz'].map((name) =>
        readFileSync(path.join(ROOT, 'target/viewer', name)),
    );
    return filled(gunzipSync(page).toString('utf8'), 'engine', `id="engine">${encoded(engine)}</script>`);
}

/** A page with something else in the element with this ID, from its ID to its end. */
function filled(page: string, id: string, element: string): string {
    const parts = page.split(elementOf(id));
    assert.equal(parts.length, 2, `the page has one element ${id}`);
    return parts.join(element);
}

function elementOf(id: string): RegExp {
    return new RegExp(`id="${id}"[^>]*>[^<]*</script>`);
}

/** A page that the binary wrote, made with the page that viewer/build has made. */
function renewed(written: string): string {
    return ['recording', 'samples'].reduce((page, id) => {
        const element = elementOf(id).exec(written);
        assert.ok(element !== null, `the page that was written has an element ${id}`);
        return filled(page, id, element[0]);
    }, emptyPage());
}

/** The page that the binary itself writes. */
export function written(...args: string[]): string {
    return scratch(`written${made++}.html`, renewed(execFileSync(BINARY, args, { encoding: 'utf8', maxBuffer: 1 << 28 })));
}

/** The text in the picture of a difference, as one string. */
export function picture(base: string, other: string): string {
    const svg = execFileSync(BINARY, ['diff', base, other, '--format', 'svg'], { encoding: 'utf8', maxBuffer: 1 << 28 });
    return svg.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');
}

/** The folder of the page as a static site. */
export function site(): string {
    const folder = path.join(SCRATCH, 'site');
    const env = { ...process.env, MEMVIZ_BINARY: BINARY };
    execFileSync(path.join(ROOT, 'viewer/site'), [folder], { env, stdio: 'ignore' });
    for (const name of readdirSync(folder).filter((each) => each.endsWith('.html'))) {
        const file = path.join(folder, name);
        writeFileSync(file, renewed(readFileSync(file, 'utf8')));
    }
    return folder;
}

/** The error message of a command. */
export function complaint(...args: string[]): string {
    return spawnSync(BINARY, args, { encoding: 'utf8' }).stderr.trim();
}

function escaped(text: string): string {
    return text.replace(/[&<>"]/g, (mark) => `&#${mark.charCodeAt(0)};`);
}

let made = 0;

/** A file of a page that contains a recording, or none. */
export function pageFile(recording: string | null, name = recording ?? ''): string {
    if (recording === null) return scratch(`page${made++}.html`, emptyPage());
    const content = encoded(readFileSync(recording));
    const element = `id="recording" data-name="${escaped(name)}">${content}</script>`;
    return scratch(`page${made++}.html`, filled(emptyPage(), 'recording', element));
}

const pages = new Map<string, string>();

/** The page of a recording, written once. */
export function pageOf(recording: string): string {
    const known = pages.get(recording) ?? pageFile(recording);
    pages.set(recording, known);
    return known;
}

let browser: Browser | null = null;

function launch(): Promise<Browser> {
    if (!isFirefox) return chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
    return firefox.launch({ channel: 'moz-firefox', executablePath: path.join(ROOT, 'viewer/test/firefox.mjs') });
}

/** Skips a test in Firefox, because it needs something that only Chromium's driver can do. */
export function onlyChromium(why: string): { skip: string | false } {
    return { skip: isFirefox && `needs Chromium's driver: ${why}` };
}

/** Runs a test in a page opened from its file; errors on its console and any network request fail it. */
export async function inPage(
    file: string,
    link: string,
    run: (page: Page) => Promise<void>,
    options: BrowserContextOptions = {},
): Promise<void> {
    browser ??= await launch();
    const context = await browser.newContext({
        viewport: { width: 1280, height: 860 },
        colorScheme: 'light',
        acceptDownloads: true,
        ...options,
    });
    const page = await context.newPage();
    await page.addInitScript(countPauses);
    const bad: string[] = [];
    page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') bad.push(message.text());
    });
    page.on('pageerror', (error) => bad.push(error.message));
    page.on('dialog', (dialog) => bad.push(`a dialog: ${dialog.message()}`));
    page.on('request', (request) => {
        if (!/^(file|blob|data):/.test(request.url())) bad.push(`a request: ${request.url()}`);
    });
    try {
        await page.goto(`file://${file}${link}`);
        await run(page);
    } finally {
        await context.close();
    }
    // To take a screenshot, Firefox's driver tries to add a style to the page.
    const isOfDriver = (text: string) => isFirefox && /blocked an inline style \(style-src-elem\)/.test(text);
    assert.deepEqual(bad.filter((text) => !isOfDriver(text)), []);
}

/** Waits until the first picture is drawn. */
export async function ready(page: Page, times = 1): Promise<void> {
    await page.waitForFunction((count) => performance.getEntriesByName('memviz:ready').length >= count, times);
    await settled(page);
}

/** Waits until all answers have arrived and are drawn, so that all views show the same state. */
export async function settled(page: Page): Promise<void> {
    await page.waitForFunction(() => document.documentElement.dataset.waiting === '0');
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await page.waitForFunction(() => document.documentElement.dataset.waiting === '0');
}

declare global {
    interface Window {
        /** Timers of less than a second that are still running. */
        pauses: Set<number>;
    }
}

/** Runs in the page before its own code, so that `rested` knows about actions that the page delays. */
function countPauses(): void {
    const [start, stop] = [window.setTimeout, window.clearTimeout];
    const pauses = (window.pauses = new Set<number>());
    const counted = (act: TimerHandler, delay = 0, ...given: unknown[]): number => {
        if (typeof act !== 'function' || delay >= 1000) return start(act, delay, ...given);
        const timer: number = start(() => {
            pauses.delete(timer);
            act(...given);
        }, delay);
        pauses.add(timer);
        return timer;
    };
    window.setTimeout = counted as typeof window.setTimeout;
    window.clearTimeout = (timer) => {
        pauses.delete(Number(timer));
        stop(timer);
    };
}

/** Waits until typed text took effect, all answers have arrived and are drawn, and the address is up to date. */
export async function rested(page: Page): Promise<void> {
    await page.waitForFunction(() => window.pauses.size === 0 && document.documentElement.dataset.waiting === '0');
    await settled(page);
    await page.waitForFunction(() => window.pauses.size === 0 && document.documentElement.dataset.waiting === '0');
}

/** Drops a file onto the page. */
export async function drop(page: Page, file: string): Promise<void> {
    const content = readFileSync(file).toString('base64');
    await page.evaluate(
        ([text, name]) => {
            const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], name));
            document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
        },
        [content, path.basename(file)],
    );
}

/** A point in a picture, given as fractions of its width and height. */
export async function place(page: Page, across = 0.5, down = 0.5, host = '#timelines'): Promise<[number, number]> {
    const box = await page.locator(`${host} canvas`).first().boundingBox();
    assert.ok(box);
    return [box.x + across * box.width, box.y + down * box.height];
}

/** The number of columns of the timeline in which a colored band reaches a height, given from 0 at the top to 1. */
export async function wide(page: Page, down: number): Promise<number> {
    return page.evaluate((part) => {
        const canvas = document.querySelector<HTMLCanvasElement>('#timelines canvas')!;
        const { width, height } = canvas;
        const { data } = canvas.getContext('2d')!.getImageData(0, Math.round(part * height), width, 1);
        let count = 0;
        // Between the labels of the axis and the right edge.
        for (let x = 70; x < width - 20; x++) {
            const [red, green, blue] = data.subarray(4 * x);
            if (Math.max(red, green, blue) - Math.min(red, green, blue) > 60) count++;
        }
        return count;
    }, down);
}

/** The parameters in the address, after the page has come to rest. */
export async function link(page: Page): Promise<URLSearchParams> {
    await rested(page);
    return new URLSearchParams(new URL(page.url()).hash.slice(1));
}

/** The details of the flame graph's root after a click on it. */
export async function root(page: Page): Promise<string> {
    const [x, y] = await place(page, 0.5, 0, '#panel-flame');
    await page.mouse.click(x, y + 12);
    await settled(page);
    return (await page.textContent('#details dl')) ?? '';
}

/** The cells of the table's rows. */
export async function rows(page: Page): Promise<string[][]> {
    return page.$$eval('#panel-table tbody tr', (all) =>
        all.map((row) => [...row.children].map((cell) => cell.textContent ?? '')),
    );
}

/** The exact bytes of the table's rows by label, from the last cell before the bar. */
export async function exact(page: Page): Promise<Map<string, number>> {
    const pairs = await page.$$eval('#panel-table tbody tr', (all) =>
        all.map((row) => [row.getAttribute('data-label'), row.getAttribute('data-bytes')]),
    );
    return new Map(pairs.map(([label, bytes]) => [label ?? '', Number(bytes)]));
}

export async function close(): Promise<void> {
    await browser?.close();
    rmSync(SCRATCH, { recursive: true });
}
