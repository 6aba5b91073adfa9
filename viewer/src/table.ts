/** What holds the memory at an instant, or what grew between two: rows that sum to the total. */

import { Latest } from './client.ts';
import { element, swatch } from './dom.ts';
import { bytes, growth, name, share, whole } from './format.ts';
import type { Lane } from './lane.ts';
import { ask, type Content, found, type Line, shown } from './rows.ts';
import { matching } from './search.ts';
import { isRow, stackedBy, touches } from './state.ts';
import type { View } from './view.ts';

/** A group, and what the figures are of. */
export interface Found {
    line: Line;
    content: Content;
}

export class Table implements View {
    #latest = new Latest();
    #content: Content | null = null;
    #lines: readonly Line[] = [];
    /** Labels and frames that the search finds. */
    #found: ReadonlySet<string> | null = null;
    #stale = true;

    readonly tab = 'table';
    readonly title = 'Table';
    readonly drawn = [];
    readonly panel = element('div', { class: 'panel table' });

    constructor(
        private readonly lanes: readonly Lane[],
        private readonly fail: (error: unknown) => void,
    ) {
        lanes[0].store.subscribe((state, changed) => {
            if (touches(changed, 'device', 'metric', 'by', 'at', 'at2', 'mark')) this.#stale = true;
            if (changed.has('selected')) this.#mark();
            if (state.tab !== 'table') return;
            if (this.#stale) this.fetch();
            else if (touches(changed, 'query')) this.#latest.run(() => this.#search());
        });
    }

    show(): void {
        if (this.#stale) this.fetch();
    }

    fetch(): void {
        this.#stale = false;
        this.#latest.run(async () => {
            try {
                this.#content = await ask(this.lanes, this.lanes[0].store.state.by);
                this.#lines = shown(this.#content);
                await this.#search();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** Marks what is found, and draws. */
    async #search(): Promise<void> {
        this.#found = await matching(
            this.lanes[0],
            this.#lines.flatMap((line) => [line.label, ...line.stack]),
        );
        this.draw();
    }

    draw(): void {
        const content = this.#content;
        if (!content) return;
        const { by, metric } = this.lanes[0].store.state;
        const compares = content.before !== null;
        const counted = metric === 'reserved' ? 'segments' : 'blocks';
        const heads = compares ? [by, ...content.heads, 'change'] : [by, metric, 'share', counted];
        const head = element('tr', {}, ...heads.map((text) => element('th', { scope: 'col' }, text)));
        head.append(element('th'));
        const most = this.#lines.reduce((most, line) => Math.max(most, Math.abs(change(line))), 1);
        const body = element('tbody', {}, ...this.#lines.map((line) => this.#row(line, content, most)));
        const total = compares
            ? ['total', bytes(content.before!), bytes(content.total), growth(content.total - content.before!)]
            : [
                  'total',
                  bytes(content.total),
                  '',
                  whole(content.lines.reduce((sum, line) => sum + (line.blocks ?? 0), 0)),
              ];
        if (content.inclusive) {
            total[0] = 'total (rows overlap)';
            total[3] = compares ? total[3] : '';
        }
        const foot = element(
            'tfoot',
            {},
            element('tr', {}, ...total.map((text) => element('td', {}, text)), element('td')),
        );
        const notes = content.notes.map((note) => name(note, 300));
        if (this.#lines.some((line) => line.inferred)) notes.push('* inferred');
        const hidden = content.inclusive ? content.lines.length - this.#lines.length : 0;
        if (hidden > 0) notes.push(`${whole(hidden)} smaller ones are not shown`);
        const focused = (document.activeElement?.closest('tr') as HTMLElement | null)?.dataset.label;
        this.panel.replaceChildren(
            element('table', { class: 'rows' }, element('thead', {}, head), body, foot),
            ...notes.map((text) => element('p', { class: 'note' }, text)),
        );
        this.#mark();
        if (focused !== undefined) this.#rows().find((row) => row.dataset.label === focused)?.focus();
    }

    #row(line: Line, content: Content, most: number): HTMLElement {
        const found = this.#found;
        const row = element('tr', {
            tabindex: '0',
            'data-label': line.label,
            'data-bytes': String(change(line)),
        });
        const label = element(
            'td',
            { class: 'label' },
            swatch(line.colour),
            name(line.label) + (line.inferred ? ' *' : ''),
        );
        label.title = line.stack
            .slice(0, 40)
            .map((frame) => name(frame))
            .join('\n');
        const bar = element('span', { class: change(line) < 0 ? 'bar less' : 'bar', 'aria-hidden': 'true' });
        bar.style.width = `${(100 * Math.abs(change(line))) / most}%`;
        const cells =
            line.before === null
                ? [bytes(line.bytes), share(line.bytes, content.total), whole(line.blocks ?? 0)]
                : [bytes(line.before), bytes(line.bytes), growth(change(line))];
        row.append(label, ...cells.map((text) => element('td', {}, text)));
        (row.lastElementChild as HTMLElement).title = `${whole(change(line))} bytes`;
        row.append(element('td', { class: 'bars' }, bar));
        if (found && [line.label, ...line.stack].some((text) => found.has(text))) row.classList.add('found');
        const choose = () => this.lanes[0].store.set({ selected: { label: line.label, isBand: false } });
        row.addEventListener('click', choose);
        row.addEventListener('keydown', (event) => {
            if (event.key !== 'Enter' && event.key !== ' ') return;
            event.preventDefault();
            choose();
        });
        return row;
    }

    #rows(): HTMLElement[] {
        return [...this.panel.querySelectorAll<HTMLElement>('tbody tr')];
    }

    /** Marks the rows that are chosen. */
    #mark(): void {
        const { state } = this.lanes[0].store;
        for (const row of this.#rows()) {
            if (isRow(state, row.dataset.label!)) row.setAttribute('aria-selected', 'true');
            else row.removeAttribute('aria-selected');
        }
    }

    /** What is known of a group: at the cursor, also where the table is not in sight. */
    async find(label: string, isBand: boolean): Promise<Found | null> {
        const { by } = this.lanes[0].store.state;
        let content: Content | null;
        if (isBand && stackedBy(by) !== by) {
            content = await ask(this.lanes, stackedBy(by));
        } else {
            if (this.#stale) this.fetch();
            await this.#latest.idle();
            content = this.#content;
        }
        const line = content && found(content, label);
        return line && { line, content: content! };
    }
}

/** What there is, or what grew. */
function change(line: Line): number {
    return line.bytes - (line.before ?? 0);
}
