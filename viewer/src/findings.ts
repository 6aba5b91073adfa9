/** What memviz has to say about the recording, each with a way to where it is. */

import type { Finding } from '../engine/engine.d.ts';
import { button, element } from './dom.ts';
import { name } from './format.ts';
import type { Lane } from './lane.ts';
import type { View } from './view.ts';

export class FindingsView implements View {
    readonly tab = 'findings';
    readonly title = 'Findings';
    readonly panel = element('div', { class: 'panel findings' }, element('p', { class: 'note' }, 'Looking…'));
    readonly drawn = [];
    /** The same beside the views, where nothing else is said. */
    readonly aside = element('div', {}, element('p', { class: 'note' }, 'Looking…'));

    constructor(
        private readonly lanes: readonly Lane[],
        private readonly go: (finding: Finding) => void,
    ) {}

    show(): void {}

    /** Shows what was found in each recording. */
    fill(findings: readonly (readonly Finding[])[]): void {
        this.panel.replaceChildren(...this.#list(findings));
        // The verdict on one recording stands above everything.
        const isSaid = this.lanes.length === 1;
        const rest = findings.map((list) => list.filter(({ kind }) => !isSaid || kind !== 'verdict'));
        this.aside.replaceChildren(...this.#list(rest));
    }

    #list(findings: readonly (readonly Finding[])[]): HTMLElement[] {
        return findings.flatMap((list, at) => {
            const heads = this.lanes.length > 1 ? [element('h2', {}, at === 0 ? 'A' : 'B')] : [];
            const shown = list.map((finding) => this.#finding(finding, this.lanes[at]));
            const none = shown.length === 0 ? [element('p', { class: 'note' }, 'Nothing stands out.')] : [];
            return [...heads, ...shown, ...none];
        });
    }

    #finding(finding: Finding, lane: Lane): HTMLElement {
        const { recording } = lane;
        const place = recording.figures.devices.length > 1 ? `${recording.device(finding.device).name}: ` : '';
        const isNamed = finding.sentence.startsWith(place);
        const head = element('p', { class: 'sentence' }, isNamed ? null : place, name(finding.sentence, 1000));
        const lines = finding.lines.map((line) => element('li', {}, name(line, 1000)));
        const isSomewhere = !lane.second && (finding.instant !== null || finding.from !== null);
        const link = isSomewhere ? button('show where', 'Go to where it is', () => this.go(finding)) : null;
        if (link) link.className = 'link';
        return element(
            'div',
            { class: finding.severity === 'alarm' ? 'finding urgent' : 'finding' },
            head,
            lines.length > 0 ? element('ul', {}, ...lines) : null,
            element('p', {}, link, link ? ' · ' : null, element('code', {}, name(command(finding, lane), 1000))),
        );
    }
}

/** What to type to read more of it. */
function command(finding: Finding, { recording }: Lane): string {
    const file = /^[\w./+-]+$/.test(recording.name) ? recording.name : 'FILE';
    return ['memviz', ...(['', 'triage'].includes(finding.command) ? [] : [finding.command]), file].join(' ');
}
