/** What holds the memory at an instant, or what grew between two: rows that sum to the total. */

import type { Difference } from '../engine/engine.d.ts';
import { Latest } from './client.ts';
import { type Colour, OTHER } from './colours.ts';
import { element, swatch } from './dom.ts';
import { bytes, entry, growth, name, share, whole } from './format.ts';
import type { Lane } from './lane.ts';
import { matching } from './search.ts';
import { OTHERS } from './stacked.ts';

import type { View } from './view.ts';

/** More rows are not read by anybody. */
const MOST = 300;

/** A line of the table, whatever it compares. */
interface Line {
    label: string;
    colour: Colour;
    inferred: boolean;
    stack: readonly string[];
    blocks: number | null;
    /** What there was before, where two are compared. */
    before: number | null;
    bytes: number;
}

interface Content {
    lines: Line[];
    before: number | null;
    total: number;
    inclusive: boolean;
    /** Headers of what was before and of what is. */
    heads: [string, string];
}

export class Table implements View {
    #latest = new Latest();
    #content: Content | null = null;
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
            const keys = ['device', 'metric', 'by', 'at', 'at2', 'mark'] as const;
            if (keys.some((key) => changed.has(key))) this.#stale = true;
            if (state.tab !== 'table') return;
            if (this.#stale) this.fetch();
            else if (changed.has('query')) this.#latest.run(() => this.#search());
            else if (changed.has('selected')) this.draw();
        });
    }

    show(): void {
        if (this.#stale) this.fetch();
    }

    fetch(): void {
        this.#stale = false;
        this.#latest.run(async () => {
            try {
                this.#content = await this.#ask();
                await this.#search();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** Marks what is found, and draws. */
    async #search(): Promise<void> {
        const lines = this.#content?.lines ?? [];
        this.#found = await matching(
            this.lanes[0],
            lines.flatMap((line) => [line.label, ...line.stack]),
        );
        this.draw();
    }

    async #ask(): Promise<Content> {
        const [first, second] = this.lanes;
        const { metric, by } = first.store.state;
        if (second) return this.#both(first, second);
        const { client } = first.recording;
        const { device } = first.device;
        if (first.mark !== null) {
            const [from, to] = [Math.min(first.mark, first.at), Math.max(first.mark, first.at)];
            const answer = await client.ask('difference', [device, metric, by, from, to, MOST]);
            return {
                lines: answer.rows.map((row) => ({
                    ...row,
                    colour: row,
                    blocks: null,
                    before: row.from_bytes,
                    bytes: row.to_bytes,
                })),
                before: answer.from_bytes,
                total: answer.to_bytes,
                inclusive: answer.inclusive,
                heads: [`at ${entry(from)}`, `at ${entry(to)}`],
            };
        }
        const [lines, answer] = await standing(first);
        const rest = lines.splice(MOST);
        return {
            lines: rest.length > 0 ? [...lines, together(rest)] : lines,
            before: null,
            total: answer.to_bytes,
            inclusive: answer.inclusive,
            heads: ['', 'bytes'],
        };
    }

    /** Both recordings, each at its own instant, by label. */
    async #both(...lanes: [Lane, Lane]): Promise<Content> {
        const [[before, was], [after, is]] = await Promise.all(lanes.map(standing));
        const lines = new Map(
            before.map((line) => [line.label, { ...line, blocks: null, before: line.bytes, bytes: 0 }]),
        );
        for (const line of after) {
            const known = lines.get(line.label);
            if (known) known.bytes = line.bytes;
            else lines.set(line.label, { ...line, blocks: null, before: 0 });
        }
        const change = (line: Line) => Math.abs(line.bytes - (line.before ?? 0));
        const sorted: Line[] = [...lines.values()].sort((a, b) => change(b) - change(a) || b.bytes - a.bytes);
        const rest = sorted.splice(MOST);
        if (rest.length > 0) sorted.push(together(rest));
        return { lines: sorted, before: was.to_bytes, total: is.to_bytes, inclusive: was.inclusive, heads: ['A', 'B'] };
    }

    draw(): void {
        const content = this.#content;
        if (!content) return;
        const { store } = this.lanes[0];
        const { selected, by, metric } = store.state;
        const found = this.#found;
        const compares = content.before !== null;
        const counted = metric === 'reserved' ? 'segments' : 'blocks';
        const heads = compares ? [by, ...content.heads, 'change'] : [by, metric, 'share', counted];
        const head = element('tr', {}, ...heads.map((text) => element('th', { scope: 'col' }, text)));
        const most = Math.max(
            1,
            ...content.lines.map((line) => Math.abs(compares ? line.bytes - line.before! : line.bytes)),
        );
        const body = element('tbody');
        for (const line of content.lines) {
            const row = element('tr', {
                tabindex: '0',
                'data-label': line.label,
                'data-bytes': String(line.bytes - (line.before ?? 0)),
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
            const change = line.bytes - (line.before ?? 0);
            const bar = element('span', { class: change < 0 ? 'bar less' : 'bar', 'aria-hidden': 'true' });
            bar.style.width = `${(100 * Math.abs(change)) / most}%`;
            const cells = compares
                ? [bytes(line.before!), bytes(line.bytes), growth(change)]
                : [bytes(line.bytes), share(line.bytes, content.total), whole(line.blocks ?? 0)];
            row.append(label, ...cells.map((text) => element('td', {}, text)));
            (row.lastElementChild as HTMLElement).title = compares
                ? `${whole(change)} bytes`
                : `${whole(line.bytes)} bytes`;
            row.append(element('td', { class: 'bars' }, bar));
            if (selected && 'label' in selected && selected.label === line.label)
                row.setAttribute('aria-selected', 'true');
            if (found && [line.label, ...line.stack].some((text) => found.has(text))) row.classList.add('found');
            const choose = () => store.set({ selected: { label: line.label } });
            row.addEventListener('click', choose);
            row.addEventListener('keydown', (event) => {
                if (event.key === 'Enter') choose();
            });
            body.append(row);
        }
        const total = compares
            ? ['total', bytes(content.before!), bytes(content.total), growth(content.total - content.before!)]
            : [
                  'total',
                  bytes(content.total),
                  '',
                  whole(content.lines.reduce((sum, line) => sum + (line.blocks ?? 0), 0)),
              ];
        if (content.inclusive) total[0] = 'total (rows overlap)';
        const foot = element(
            'tfoot',
            {},
            element('tr', {}, ...total.map((text) => element('td', {}, text)), element('td')),
        );
        head.append(element('th'));
        const notes = content.lines.some((line) => line.inferred)
            ? element('p', { class: 'note' }, '* inferred')
            : null;
        const table = element('table', { class: 'rows' }, element('thead', {}, head), body, foot);
        this.panel.replaceChildren(...[table, notes].filter((each) => each !== null));
    }

    /** What is known of a group: at the cursor, also where the table is not in sight. */
    async find(label: string): Promise<(Line & { total: number }) | null> {
        if (this.#stale) this.fetch();
        await this.#latest.idle();
        const line = this.#content?.lines.find((each) => each.label === label);
        return line ? { ...line, total: this.#content!.total } : null;
    }
}

/** What there is at the instant of a lane, the most first: the difference to the same instant has all rows and their colours. */
async function standing(lane: Lane): Promise<[Line[], Difference]> {
    const { metric, by } = lane.store.state;
    const answer = await lane.recording.client.ask('difference', [lane.device.device, metric, by, lane.at, lane.at, 0]);
    const lines = answer.rows.map((row) => ({
        ...row,
        colour: row,
        blocks: row.to_blocks,
        before: null,
        bytes: row.to_bytes,
    }));
    return [lines.sort((a, b) => b.bytes - a.bytes), answer];
}

/** Many rows as one. */
function together(rest: readonly Line[]): Line {
    const sum = (of: (line: Line) => number | null) =>
        of(rest[0]) === null ? null : rest.reduce((total, line) => total + (of(line) ?? 0), 0);
    const inferred = rest.some((line) => line.inferred);
    return {
        label: OTHERS,
        colour: OTHER,
        inferred,
        stack: [],
        blocks: sum((line) => line.blocks),
        before: sum((line) => line.before),
        bytes: sum((line) => line.bytes) ?? 0,
    };
}
