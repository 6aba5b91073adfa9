/** The start of the page: an embedded recording, or files that are dropped on it. */

import { byId, button, element } from './dom.ts';
import { take as carriedIn } from './embedded.ts';
import { choose, type Given, onDrop, sorted } from './files.ts';
import { name } from './format.ts';
import { KEYS } from './keys.ts';
import type { Opening } from './opening.ts';
import { fail, Page } from './page.ts';
import type { Carried } from './protocol.ts';
import { Recording } from './recording.ts';
import { download, png, svg } from './save.ts';
import { addSources } from './sources.ts';
import { listenToSplit } from './split.ts';

let engine: Blob | null = null;
/** One recording, or two to compare. */
let recordings: readonly Recording[] = [];
/** Other ranks of the first recording's run. */
let beside: readonly Recording[] = [];
let page: Page | null = null;
/** Whether the page was created for a recording: then the URL refers to it. */
let carries = false;

/** Opens files: a second one is compared with the first, further ones are ranks of one run. On failure, nothing changes. */
async function open(sources: readonly Carried[], isSecond: boolean, opening: Opening): Promise<void> {
    byId('alarm').hidden = true;
    const verdict = byId('verdict');
    verdict.classList.remove('alarm');
    const read: Recording[] = [];
    try {
        if (!engine) throw new Error('this page was made without its engine');
        for (const source of sources) {
            const place = sources.length > 1 ? ` (${read.length + 1} of ${sources.length})` : '';
            verdict.textContent = `Reading ${name(source.name, 80)}${place}…`;
            const recording = await Recording.open(engine, source);
            read.push(recording);
            if (recording.figures.devices.length === 0)
                throw new Error(`${source.name}: no GPU memory was allocated while recording, or recording was off`);
        }
        const [first, ...rest] = read;
        const shown = isSecond ? [recordings[0], first] : sources.length === 2 ? read : [first];
        await show(shown, sources.length > 2 ? rest : [], opening, isSecond ? page : null);
    } catch (error) {
        for (const each of read) each.client.close();
        refuse(error instanceof Error ? `memviz: ${error.message}` : String(error));
    }
}

/** Shows open recordings instead of the previous ones. */
async function show(
    shown: readonly Recording[],
    ranks: readonly Recording[],
    opening: Opening,
    before: Page | null,
): Promise<void> {
    const opened = await Page.open(shown, ranks, opening, before, turnTo);
    page?.close();
    const kept = [...shown, ...ranks];
    for (const each of [...recordings, ...beside]) if (!kept.includes(each)) each.client.close();
    [page, recordings, beside] = [opened, shown, ranks];
    actions();
}

/** Shows another rank of the run in all views. */
function turnTo(recording: Recording): void {
    opened = opened.then(async () => {
        try {
            const all = [...recordings, ...beside].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
            const opening = { link: '', isLinked: false, shown: '' };
            await show([recording], all.filter((each) => each !== recording), opening, page);
        } catch (error) {
            fail(error);
        }
    });
}

/** Shows why a file cannot be opened; the previous view stays. */
function refuse(why: string): void {
    byId('verdict').textContent = '';
    page?.verdict();
    fail(why);
    if (!page) welcome();
}

/** Files are opened one after the other: only then is it known whether one is the second. */
let opened: Promise<void> = Promise.resolve();

/** Takes chosen or dropped files: recordings, or sources; one recording can be compared with the open one. */
function take(given: Given, isWithFirst: boolean): void {
    const { recordings: files, sources } = sorted(given);
    if (sources.length > 0) {
        addSources(sources);
        page?.sourced();
        // The folder of a program may contain recordings, which are not wanted here.
        if (page || files.length === 0) return;
    }
    if (files.length === 0) {
        fail(new Error('expected a recording or Python files in the folder, found neither'));
        return;
    }
    opened = opened.then(async () => {
        const isOne = new Set(files.map(({ file }) => file.name)).size < files.length;
        const all = await Promise.all(
            files.map(async ({ file, path, samples }) => ({
                bytes: file,
                name: isOne ? path : file.name,
                options: '',
                samples: (await samples?.text()) ?? '',
                findings: '',
            })),
        );
        const isSecond = isWithFirst && all.length === 1 && page !== null;
        // A URL that was there before the first file refers to that file.
        const link = page === null && !carries ? location.hash : '';
        const isLinked = isSecond ? page!.opening.isLinked : !carries;
        await open(all, isSecond, { link, isLinked, shown: isSecond ? page!.opening.shown : '' });
    });
}

function actions(): void {
    const made = [
        button('Open…', 'Open another recording; it stays in this browser', () =>
            choose((given) => take(given, false)),
        ),
        button('Folder…', 'Open the ranks of a run, or the source of your program, so that stacks show lines of code; both stay in this browser', () =>
            choose((given) => take(given, false), true),
        ),
    ];
    if (recordings.length > 0) {
        made.push(
            button('Compare with…', 'Open a second recording beside this one, or drop it on the page', () =>
                choose((given) => take(given, true)),
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

/** Saves the timeline, and the view below it if that is a picture. */
function keep(kind: 'svg' | 'png'): void {
    if (!page) return;
    const sheet = page.sheet();
    const file = `${recordings.map((each) => each.name.replace(/[^\w.-]+/g, '_').slice(-60)).join('-')}.${kind}`;
    const made = kind === 'svg' ? Promise.resolve(svg(sheet)) : png(sheet);
    made.then((blob) => download(blob, file)).catch(fail);
}

/** The page without a recording. */
function welcome(): void {
    const open = button('Choose a file', 'Open a recording', () => choose((given) => take(given, false)));
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

/** Links to pages with a sample, if the site that contains this page has some: viewer/site lists them. */
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
            'Instant N is the state after N entries. Drop a second file to compare two recordings, the files or the folder of a run to see its ranks, or the folder of your program to see lines of code. The URL stores the current view: copy it to share the view with anyone who has the page.',
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

onDrop((given) => take(given, true), fail);
actions();
help();
listenToSplit();
engine = carriedIn('engine')?.bytes ?? null;
const carried = carriedIn('recording');
if (carried) {
    carries = true;
    const link = location.hash.length > 1 ? location.hash : carried.show;
    opened = open([carried], false, { link, isLinked: true, shown: carried.show });
} else welcome();
