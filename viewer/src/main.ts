/** Where the page begins: what it carries, or what is dropped on it. */

import { byId, button, element } from './dom.ts';
import { take } from './embedded.ts';
import { choose, onDrop } from './files.ts';
import { name } from './format.ts';
import { KEYS } from './keys.ts';
import type { Opening } from './opening.ts';
import { fail, Page } from './page.ts';
import { Recording, type Source } from './recording.ts';
import { download, png, svg } from './save.ts';
import { listenToSplit } from './split.ts';

let engine: Blob | null = null;
let recordings: readonly Recording[] = [];
let page: Page | null = null;
/** Whether the page was made for a recording: the address speaks of that one. */
let carries = false;

/** Opens a file; a second one is compared with the first. What is seen stays until that has succeeded. */
async function open(source: Source, isSecond: boolean, opening: Opening): Promise<void> {
    byId('alarm').hidden = true;
    const verdict = byId('verdict');
    verdict.classList.remove('alarm');
    verdict.textContent = `Reading ${name(source.name, 80)}…`;
    let recording: Recording | null = null;
    try {
        if (!engine) throw new Error('this page was made without its engine');
        recording = await Recording.open(engine, source);
        if (recording.figures.devices.length === 0) {
            recording.client.close();
            refuse(`${source.name}: no GPU memory was allocated while recording`);
            return;
        }
        const next = isSecond ? [recordings[0], recording] : [recording];
        const opened = await Page.open(next, opening, isSecond ? page : null);
        page?.close();
        for (const each of recordings) if (!next.includes(each)) each.client.close();
        [page, recordings] = [opened, next];
        actions();
    } catch (error) {
        recording?.client.close();
        refuse(error instanceof Error ? `memviz: ${error.message}` : String(error));
    }
}

/** Says why a file is not shown; what was seen before still is. */
function refuse(why: string): void {
    byId('verdict').textContent = '';
    page?.verdict();
    fail(why);
    if (!page) welcome();
}

/** Files are opened one after the other: whether one is the second is known only then. */
let opened: Promise<void> = Promise.resolve();

function openFile(file: File, isWithFirst: boolean): void {
    const source = { bytes: file, name: file.name, options: '' };
    opened = opened.then(() => {
        const isSecond = isWithFirst && page !== null;
        // An address that was there before anything else is about what comes first.
        const link = page === null && !carries ? location.hash : '';
        const isLinked = isSecond ? page!.opening.isLinked : !carries;
        return open(source, isSecond, { link, isLinked, shown: isSecond ? page!.opening.shown : '' });
    });
}

function actions(): void {
    const made = [
        button('Open…', 'Open another recording; it stays in this browser', () =>
            choose((file) => openFile(file, false)),
        ),
    ];
    if (recordings.length > 0) {
        made.push(
            button('Compare with…', 'Open a second recording beside this one, or drop it on the page', () =>
                choose((file) => openFile(file, true)),
            ),
        );
    }
    if (page) {
        made.push(
            button('SVG', 'Save the current view as SVG', () => keep('svg')),
            button('PNG', 'Save the current view as PNG', () => keep('png')),
        );
    }
    made.push(button('?', 'Keyboard shortcuts and help', () => byId<HTMLDialogElement>('help').showModal()));
    byId('actions').replaceChildren(...made);
}

/** Saves the timeline, and the view below it where that is a picture. */
function keep(kind: 'svg' | 'png'): void {
    if (!page) return;
    const sheet = page.sheet();
    const file = `${recordings.map((each) => each.name.replace(/[^\w.-]+/g, '_').slice(-60)).join('-')}.${kind}`;
    const made = kind === 'svg' ? Promise.resolve(svg(sheet)) : png(sheet);
    made.then((blob) => download(blob, file)).catch(fail);
}

/** The page without a recording. */
function welcome(): void {
    const open = button('Choose a file', 'Open a recording', () => choose((file) => openFile(file, false)));
    const host = byId('welcome');
    host.replaceChildren(
        element(
            'div',
            { class: 'drop' },
            element('h2', {}, 'Drop a recording here'),
            element(
                'p',
                {},
                'A snapshot of ',
                element('code', {}, 'torch.cuda.memory._dump_snapshot()'),
                ', a profiler trace or a memory timeline,',
            ),
            element('p', {}, 'plain or compressed. It is read in this browser and never leaves it.'),
            open,
        ),
        ...samples(),
    );
    host.hidden = false;
}

/** Links to pages with a sample, where the site that the page is part of has some: viewer/site lists them. */
function samples(): HTMLElement[] {
    const listed = byId('samples').textContent.trim();
    if (listed === '') return [];
    const all = JSON.parse(listed) as { page: string; shows: string }[];
    const links = all.map(({ page, shows }) => element('li', {}, element('a', { href: page }, shows)));
    return [element('div', { class: 'samples' }, element('p', {}, 'Or look at a sample:'), element('ul', {}, ...links))];
}

function help(): void {
    const dialog = byId<HTMLDialogElement>('help');
    const rows = KEYS.flatMap(([keys, what]) => [
        element('dt', {}, ...keys.split(', ').map((key) => element('kbd', {}, key))),
        element('dd', {}, what),
    ]);
    const close = button('Close', 'Close (Escape)', () => dialog.close());
    dialog.replaceChildren(
        element('h2', {}, 'Keys'),
        element('dl', {}, ...rows),
        element(
            'p',
            { class: 'note' },
            'Instant N is the state after N entries. Drop a second file to compare. The URL stores the current view: copy it to share the view with anyone who has the page.',
        ),
        element(
            'details',
            { class: 'notice' },
            element('summary', {}, 'Libraries in this page and their licenses'),
            element('pre', {}, byId('notice').textContent ?? ''),
        ),
        close,
    );
}

onDrop((files) => {
    const [first, second] = files;
    openFile(first, second === undefined);
    if (second) openFile(second, true);
});
actions();
help();
listenToSplit();
engine = take('engine')?.bytes ?? null;
const carried = take('recording');
if (carried) {
    carries = true;
    const link = location.hash.length > 1 ? location.hash : carried.show;
    opened = open(carried, false, { link, isLinked: true, shown: carried.show });
} else welcome();
