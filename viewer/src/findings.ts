/** The findings about the recording, each with a link to its instant. */

import type { Cure, Finding } from '../engine/engine.d.ts';
import { tryCure } from './cures.ts';
import { breakable, button, element } from './dom.ts';
import { name } from './format.ts';
import { isStill, type Lane } from './lane.ts';
import { command as words, typed } from './shell.ts';
import { touches, tried } from './state.ts';
import type { View } from './view.ts';

/** The most cures next to the views: the tab has all. */
const CURES = 3;

export class FindingsView implements View {
    readonly tab = 'findings';
    readonly title = 'Findings';
    readonly panel = element('div', { class: 'panel findings' }, element('p', { class: 'note' }, 'Analyzing the recording…'));
    readonly drawn = [];
    /** The same next to the views, if there is nothing else. */
    readonly aside = element('div', {}, element('p', { class: 'note' }, 'Analyzing the recording…'));

    /** Whether the place next to the views stays empty. */
    isSilent = false;

    /** The findings of the first recording. */
    #found: readonly Finding[] = [];

    constructor(
        private readonly lanes: readonly Lane[],
        private readonly go: (finding: Finding) => void,
        /** Switches to a device. */
        private readonly turn: (device: number) => Promise<void>,
    ) {
        lanes[0].store.subscribe((_, changed) => {
            if (touches(changed, 'cures', 'device')) this.#mark();
        });
    }

    show(): void {}

    /** Marks the cures that are tried. */
    #mark(): void {
        const { state } = this.lanes[0].store;
        const places = tried(state);
        for (const host of [this.panel, this.aside]) {
            for (const box of host.querySelectorAll<HTMLInputElement>('input[data-cure]'))
                box.checked = Number(box.dataset.device) === state.device && places.includes(Number(box.dataset.cure));
        }
    }

    /** Shows the findings of each recording. */
    fill(findings: readonly (readonly Finding[])[]): void {
        [this.#found] = findings;
        // The verdict on a single recording is above everything.
        const isSaid = this.lanes.length === 1;
        const isVerdict = (finding: Finding, at: number) => isSaid && at === 0 && finding.kind === 'verdict';
        this.panel.replaceChildren(...this.#list(findings.map((list) => list.filter((finding, at) => !isVerdict(finding, at)))));
        const rest = findings.map((list) => {
            const told = list.filter(({ kind }) => !isSaid || kind !== 'verdict');
            const cures = told.filter(({ kind }) => kind === 'advice').slice(CURES);
            return told.filter((finding) => !cures.includes(finding));
        });
        this.isSilent = rest.every((list) => list.length === 0);
        this.aside.replaceChildren(...this.#list(rest));
        this.#mark();
    }

    #list(findings: readonly (readonly Finding[])[]): HTMLElement[] {
        return findings.flatMap((list, at) => {
            const heads = this.lanes.length > 1 ? [element('h2', {}, at === 0 ? 'A' : 'B')] : [];
            const shown = list.map((finding) => this.#finding(finding, this.lanes[at]));
            const none = shown.length === 0 ? [element('p', { class: 'note' }, 'Nothing stands out.')] : [];
            return [...heads, ...shown, ...none];
        });
    }

    /** The switch that tries a cure: its curve is drawn over the recorded one. */
    #switch(device: number, cure: Cure | null): HTMLElement | null {
        if (!cure || this.lanes.length > 1) return null;
        const box = element('input', { type: 'checkbox', 'data-cure': String(cure.place), 'data-device': String(device) });
        box.addEventListener('change', () => void tryCure(this.lanes[0].store, this.#found, device, cure, box.checked, this.turn));
        return element('label', { class: 'try' }, box, ' show the predicted memory in the timeline');
    }

    /** An alternative to the cure of a finding. */
    #other(device: number, { sentence, lines, code, cure }: Finding['alternatives'][number]): HTMLElement {
        return element(
            'div',
            { class: 'other' },
            element('p', { class: 'sentence' }, 'or ', ...breakable(name(sentence, 1000))),
            element('ul', {}, ...lines.map((line) => element('li', {}, ...breakable(name(line, 1000))))),
            ...codeOf(code),
            this.#switch(device, cure),
        );
    }

    #finding(finding: Finding, lane: Lane): HTMLElement {
        const { recording } = lane;
        const isOfAll = finding.kind === 'devices';
        const place = recording.figures.devices.length > 1 && !isOfAll ? `${recording.device(finding.device).name}: ` : '';
        const isNamed = finding.sentence.startsWith(place);
        const head = element('p', { class: 'sentence' }, isNamed ? null : place, ...breakable(name(finding.sentence, 1000)));
        const lines = finding.lines.map((line) => element('li', {}, ...breakable(name(line, 1000))));
        const isSomewhere = !lane.second && !isStill([lane]) && (finding.instant !== null || finding.from !== null);
        const link = isSomewhere ? button('go to it', 'Go to the instant that this is about', () => this.go(finding)) : null;
        if (link) link.className = 'link';
        return element(
            'div',
            { class: finding.severity === 'alarm' ? 'finding urgent' : 'finding' },
            head,
            lines.length > 0 ? element('ul', {}, ...lines) : null,
            ...codeOf(finding.code),
            this.#switch(finding.device, finding.cure),
            ...finding.alternatives.map((other) => this.#other(finding.device, other)),
            element('p', {}, link, link ? ' · ' : null, element('code', {}, ...breakable(name(command(finding, lane), 1000)))),
        );
    }
}

/** The lines of Python that make a change. */
export function codeOf(lines: readonly string[]): HTMLElement[] {
    return lines.map((line) => element('code', { class: 'python' }, name(line, 1000)));
}

/** The command that shows more about it. */
function command(finding: Finding, { recording }: Lane): string {
    const own = ['', 'triage'].includes(finding.command) ? [] : [finding.command];
    const options = finding.options.split(' ').filter((option) => option !== '');
    return words([...own, typed(recording.name), ...options], []);
}
