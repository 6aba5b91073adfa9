/** A view that a recording cannot fill, and why: it stays in its place, so that nobody searches for it. */

import { element } from './dom.ts';
import type { Tab } from './state.ts';
import type { View } from './view.ts';

export class MissingView implements View {
    readonly panel: HTMLElement;
    readonly drawn = [];

    constructor(
        readonly tab: Tab,
        readonly title: string,
        reason: string,
    ) {
        this.panel = element('div', { class: 'panel unknown' }, element('div', { class: 'why' }, element('p', {}, reason)));
    }

    show(): void {}
}
