/** Files that the reader chooses or drops, also in folders. They are read here and sent nowhere. */

import { element } from './dom.ts';

/** A file, and its path in the dropped or chosen files. */
export interface Taken {
    file: File;
    path: string;
}

/** Files that were dropped or chosen together. */
export interface Given {
    files: Taken[];
    /** Whether they contained a folder. */
    isFolder: boolean;
}

/** The most files of a folder. */
const MOST = 50_000;
/** Folders that are not part of a program. */
const SKIPPED = /^(\..*|node_modules|__pycache__)$/;

/** Lets the reader choose files, or a folder. */
export function choose(chosen: (given: Given) => void, isFolder = false): void {
    const input = element('input', { type: 'file', multiple: '', ...(isFolder ? { webkitdirectory: '' } : {}) });
    input.addEventListener('change', () => {
        const all = [...(input.files ?? [])].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
        const files = all.filter(({ path }) => !path.split('/').slice(0, -1).some((part) => SKIPPED.test(part)));
        if (files.length > 0) chosen({ files, isFolder });
    });
    input.click();
}

/** Listens for files and folders that are dropped anywhere on the page. */
export function onDrop(dropped: (given: Given) => void, fail: (error: unknown) => void): void {
    const isFile = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
    addEventListener('dragover', (event) => {
        if (!isFile(event)) return;
        event.preventDefault();
        document.body.classList.add('over');
    });
    addEventListener('dragleave', (event) => {
        if (event.relatedTarget === null) document.body.classList.remove('over');
    });
    addEventListener('drop', (event) => {
        if (!isFile(event)) return;
        event.preventDefault();
        document.body.classList.remove('over');
        taken(event.dataTransfer!).then((given) => {
            if (given.files.length > 0) dropped(given);
        }, fail);
    });
}

/** Features that not all browsers have. */
interface Item {
    getAsFileSystemHandle?(): Promise<FileSystemHandle | null>;
}

/** All dropped files. They must be requested at once: later, the drop event is over. */
async function taken(data: DataTransfer): Promise<Given> {
    const items = [...data.items].filter(({ kind }) => kind === 'file');
    const all = items.map((item) => {
        const entry = item.webkitGetAsEntry?.() ?? null;
        if (!entry?.isDirectory) return { file: item.getAsFile(), entry: null, handle: null };
        // In a page opened from a file, Chromium reads folders only through handles.
        return { file: null, entry, handle: (item as Item).getAsFileSystemHandle?.().catch(() => null) ?? null };
    });
    const given: Given = { files: [], isFolder: false };
    for (const { file, entry, handle } of all) {
        if (file) given.files.push({ file, path: file.name });
        if (!entry) continue;
        given.isFolder = true;
        const opened = await handle;
        if (opened) await walkHandle(opened as FileSystemDirectoryHandle, opened.name, given.files);
        else await walkEntry(entry as FileSystemDirectoryEntry, entry.name, given.files);
    }
    return given;
}

function requireRoom(files: readonly Taken[]): void {
    if (files.length >= MOST) throw new Error(`expected at most ${MOST} files in a folder, found more`);
}

async function walkHandle(folder: FileSystemDirectoryHandle, path: string, files: Taken[]): Promise<void> {
    const entries = (folder as unknown as { values(): AsyncIterable<FileSystemHandle> }).values();
    for await (const each of entries) {
        requireRoom(files);
        const place = `${path}/${each.name}`;
        if (each.kind === 'file') files.push({ file: await (each as FileSystemFileHandle).getFile(), path: place });
        else if (!SKIPPED.test(each.name)) await walkHandle(each as FileSystemDirectoryHandle, place, files);
    }
}

async function walkEntry(folder: FileSystemDirectoryEntry, path: string, files: Taken[]): Promise<void> {
    const reader = folder.createReader();
    const next = () => new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    for (let some = await next(); some.length > 0; some = await next()) {
        for (const each of some) {
            requireRoom(files);
            const place = `${path}/${each.name}`;
            if (each.isFile) {
                const file = await new Promise<File>((resolve, reject) => (each as FileSystemFileEntry).file(resolve, reject));
                files.push({ file, path: place });
            } else if (!SKIPPED.test(each.name)) await walkEntry(each as FileSystemDirectoryEntry, place, files);
        }
    }
}

const RECORDING = /\.(pickle|pkl|json|html?|pb)(\.(gz|zst|zip))?$|\.(gz|zst|zip)$/i;
const SAMPLES = /\.device\.json$/i;

/** Sorts files into recordings with their samples, in the order of their names, and sources. */
export function sorted({ files, isFolder }: Given): { recordings: (Taken & { samples: File | null })[]; sources: Taken[] } {
    const sources = files.filter(({ path }) => /\.pyi?$/i.test(path));
    const samples = new Map(files.filter(({ path }) => SAMPLES.test(path)).map(({ path, file }) => [path, file]));
    const isRecording = ({ path }: Taken) =>
        !/\.pyi?$/i.test(path) && !SAMPLES.test(path) && (!isFolder || RECORDING.test(path));
    const beside = (path: string) => `${path.replace(/\.(gz|zst|zip)$/, '').replace(/\.[^./]*$/, '')}.device.json`;
    const recordings = files
        .filter(isRecording)
        .map((each) => ({ ...each, samples: samples.get(beside(each.path)) ?? null }))
        .sort((a, b) => a.path.localeCompare(b.path, 'en', { numeric: true }));
    return { recordings, sources };
}
