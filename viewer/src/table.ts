/** Memory by group at an instant, or its growth between two: rows that sum to the total. */

import { Latest } from './client.ts';
import { type Column, columns } from './columns.ts';
import { button, element, swatch } from './dom.ts';
import { counted, name, whole } from './format.ts';
import type { Lane } from './lane.ts';
import { ask, type Content, found, type Line, shown } from './rows.ts';
import { matching } from './search.ts';
import { isRow, stackedBy, touches } from './state.ts';
import type { View } from './view.ts';

/** A group, and its content. */
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
    /** Whether it was visible: before that, it requests nothing. */
    #isBegun = false;
    /** The column that rows are sorted by, by its header; unsorted if there is no such column. */
    #order: string | null = null;

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
            if (state.tab !== 'table' || !this.#isBegun) return;
            if (this.#stale) this.fetch();
            else if (touches(changed, 'query')) this.#latest.run(() => this.#search());
        });
    }

    show(): void {
        this.#isBegun = true;
        if (this.#stale) this.fetch();
    }

    fetch(): void {
        this.#stale = false;
        this.#latest.run(async () => {
            try {
                this.#content = await ask(this.lanes, this.lanes[0].store.state.by);
                await this.#sort();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** Sorts the rows, and draws. */
    async #sort(): Promise<void> {
        const content = this.#content;
        if (!content) return;
        const column = this.#columns(content).find(({ head }) => head === this.#order);
        const size = (line: Line) => Math.abs(column?.of(line) ?? 0);
        const lines = column ? [...content.lines].sort((a, b) => size(b) - size(a)) : content.lines;
        this.#lines = shown({ ...content, lines });
        await this.#search();
    }

    /** Marks the rows that the search finds, and draws. */
    async #search(): Promise<void> {
        this.#found = await matching(
            this.lanes[0],
            this.#lines.flatMap((line) => [line.label, ...line.stack]),
        );
        this.draw();
    }

    #columns(content: Content): Column[] {
        return columns(content, this.lanes[0].store.state.metric);
    }

    draw(): void {
        const content = this.#content;
        if (!content) return;
        const all = this.#columns(content);
        const head = element('tr', {}, element('th', { scope: 'col' }, this.lanes[0].store.state.by));
        head.append(...all.map((column) => this.#head(column)), element('th'));
        const most = this.#lines.reduce((most, line) => Math.max(most, Math.abs(change(line))), 1);
        const body = element('tbody', {}, ...this.#lines.map((line) => this.#row(line, all, most)));
        const total = content.inclusive ? 'total (rows overlap)' : 'total';
        const cells = all.map((column) => element('td', place(column), column.total));
        const foot = element('tfoot', {}, element('tr', {}, element('td', {}, total), ...cells, element('td')));
        const notes = content.notes.map((note) => name(note, 300));
        if (this.#lines.some((line) => line.inferred)) notes.push('* inferred');
        const hidden = content.inclusive ? content.lines.length - this.#lines.length : 0;
        if (hidden > 0) notes.push(`${counted(hidden, 'smaller row is', 'smaller rows are')} not shown`);
        const { activeElement } = document;
        const focused = this.panel.contains(activeElement) ? (activeElement as HTMLElement).dataset : {};
        this.panel.replaceChildren(
            element('table', { class: 'rows' }, element('thead', {}, head), body, foot),
            ...notes.map((text) => element('p', { class: 'note' }, text)),
        );
        this.#mark();
        const again = [...this.panel.querySelectorAll<HTMLElement>('tbody tr, thead button')];
        const same = ({ dataset }: HTMLElement) => dataset.label === focused.label && dataset.head === focused.head;
        if (focused.label !== undefined || focused.head !== undefined) again.find(same)?.focus();
    }

    /** The header of a column, which sorts by it. */
    #head(column: Column): HTMLElement {
        const { head } = column;
        const isSorted = head === this.#order;
        const made = element('th', { scope: 'col', ...place(column), ...(isSorted ? { 'aria-sort': 'descending' } : {}) });
        if (!column.sorts) {
            made.append(head);
            return made;
        }
        const sort = button(head, isSorted ? 'Back to the first order' : 'Sort by this column, the largest first', () => {
            this.#order = isSorted ? null : head;
            this.#latest.run(() => this.#sort());
        });
        sort.dataset.head = head;
        made.append(sort);
        return made;
    }

    #row(line: Line, all: readonly Column[], most: number): HTMLElement {
        const found = this.#found;
        const row = element('tr', {
            tabindex: '0',
            'data-label': line.label,
            'data-bytes': String(change(line)),
        });
        const label = element(
            'td',
            { class: 'label' },
            swatch(line.color),
            element('span', { class: 'name' }, name(line.label) + (line.inferred ? ' *' : '') + name(line.was)),
        );
        label.title = line.stack
            .slice(0, 40)
            .map((frame) => name(frame))
            .join('\n');
        const bar = element('span', { class: change(line) < 0 ? 'bar less' : 'bar', 'aria-hidden': 'true' });
        bar.style.width = `${(100 * Math.abs(change(line))) / most}%`;
        const cells = all.map((column) => {
            const cell = element('td', place(column), column.text(line));
            if (column.counts === 'bytes') cell.title = `${whole(column.of(line))} bytes`;
            return cell;
        });
        row.append(label, ...cells, element('td', { class: 'bars' }, bar));
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

    /** Marks the selected rows. */
    #mark(): void {
        const { state } = this.lanes[0].store;
        for (const row of this.#rows()) {
            if (isRow(state, row.dataset.label!)) row.setAttribute('aria-selected', 'true');
            else row.removeAttribute('aria-selected');
        }
    }

    /** The figures of a group at the cursor, even if the table is not visible. */
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

/** Marks the cells of columns that a narrow window omits. */
function place({ isExtra }: Column): Record<string, string> {
    return isExtra ? { class: 'extra' } : {};
}

/** The bytes, or their growth. */
function change(line: Line): number {
    return line.bytes - (line.before ?? 0);
}
