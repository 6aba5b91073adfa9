/** Files that the reader chooses or drops. They are read here and go nowhere. */

import { element } from './dom.ts';

/** Lets the reader choose a file. */
export function choose(chosen: (file: File) => void): void {
    const input = element('input', { type: 'file' });
    input.addEventListener('change', () => {
        const [file] = input.files ?? [];
        if (file) chosen(file);
    });
    input.click();
}

/** Listens for files that are dropped anywhere on the page. */
export function onDrop(dropped: (files: File[]) => void): void {
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
        const files = [...(event.dataTransfer?.files ?? [])];
        if (files.length > 0) dropped(files);
    });
}
