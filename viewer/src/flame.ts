/** The live bytes by stack, as an icicle: the root on top, callees below. A click looks closer. */

import type { FlameNode } from '../engine/engine.d.ts';
import { choosable } from './chosen.ts';
import { Latest } from './client.ts';
import { BACKGROUND, mix, MUTED, onTop } from './colours.ts';
import type { Details } from './details.ts';
import { element } from './dom.ts';
import { bytes, name, share, whole } from './format.ts';
import type { Lane } from './lane.ts';
import type { Pen } from './pen.ts';
import { fitting } from './ribbons.ts';
import { Scrolled } from './scrolled.ts';
import { matching } from './search.ts';
import { touches } from './state.ts';
import type { Surface } from './surface.ts';
import { theme } from './theme.ts';
import type { Tip } from './tip.ts';
import type { Drawn, View } from './view.ts';

const ROW = 19;
const SIDE = 14;

/** The icicle of one recording. */
class Icicle implements Drawn {
    readonly surface: Surface;
    readonly #scrolled: Scrolled;
    #latest = new Latest();
    #nodes: FlameNode[] = [];
    /** Labels that the search finds. */
    #found: ReadonlySet<string> | null = null;
    #query = '';
    #key = '';
    /** The node that takes the whole width, by its place. */
    #root = 0;
    #hover = -1;

    constructor(
        host: HTMLElement,
        private readonly lane: Lane,
        private readonly details: Details,
        private readonly tip: Tip,
        private readonly fail: (error: unknown) => void,
    ) {
        this.#scrolled = new Scrolled(host, lane.store.gone, () => this.paint(this.surface.pen));
        this.surface = this.#scrolled.surface;
        const { canvas } = this.surface;
        choosable(
            canvas,
            lane,
            (step) => this.#next(step),
            () => this.#click(),
        );
        canvas.setAttribute('aria-label', 'Flame graph of the live bytes; the table by stack shows the same as rows');
        canvas.addEventListener('pointermove', (event) => this.#point(event));
        canvas.addEventListener('pointerleave', () => {
            this.#hover = -1;
            tip.hide();
            this.surface.invalidate();
        });
        canvas.addEventListener('click', () => this.#click());
        lane.store.subscribe((state, changed) => {
            if (state.tab !== 'flame') return;
            if (touches(changed, 'at', 'at2', 'device', 'metric', 'tab', 'query')) this.fetch();
            this.surface.invalidate();
        });
    }

    fetch(): void {
        const { metric, query } = this.lane.store.state;
        const { device } = this.lane.device;
        const key = [device, metric, this.lane.at].join();
        if (key === this.#key && query === this.#query) return;
        this.#latest.run(async () => {
            try {
                if (key !== this.#key) {
                    const path = this.#path(this.#root).map((node) => node.label);
                    this.#nodes = await this.lane.recording.client.ask('flame', [device, metric, this.lane.at]);
                    this.#key = key;
                    this.#root = this.#follow(path);
                    this.#hover = -1;
                    const deepest = this.#nodes.reduce((most, node) => Math.max(most, node.depth), 0);
                    this.#scrolled.height = (deepest + 2) * ROW;
                }
                this.#found = await matching(
                    this.lane,
                    this.#nodes.map((node) => node.label),
                );
                this.#query = query;
                this.surface.invalidate();
            } catch (error) {
                this.fail(error);
            }
        });
    }

    /** A node and what it is in, the outermost first. */
    #path(at: number): FlameNode[] {
        const path: FlameNode[] = [];
        let depth = Number.POSITIVE_INFINITY;
        for (let each = at; each >= 0 && depth > 0; each--) {
            const node = this.#nodes[each];
            if (!node || node.depth >= depth) continue;
            path.push(node);
            depth = node.depth;
        }
        return path.reverse();
    }

    /** The node at the end of a path of labels, as far as it still exists. */
    #follow(path: readonly string[]): number {
        let found = 0;
        for (let at = 1, depth = 1; at < this.#nodes.length && depth < path.length; at++) {
            const node = this.#nodes[at];
            if (node.depth < depth) break;
            if (node.depth === depth && node.label === path[depth]) {
                found = at;
                depth++;
            }
        }
        return found;
    }

    /** Calls for each node that is seen. */
    #each(
        call: (node: FlameNode, at: number, box: { x: number; y: number; width: number; height: number }) => void,
    ): void {
        const root = this.#nodes[this.#root];
        if (!root || root.bytes <= 0) return;
        const width = Math.max(10, this.surface.width - 2 * SIDE);
        const scale = width / root.bytes;
        const { offset } = this.#scrolled;
        this.#nodes.forEach((node, at) => {
            const y = 4 + node.depth * ROW - offset;
            if (y < -ROW || y > this.surface.height) return;
            const from = Math.max(node.start, root.start);
            const to = Math.min(node.start + node.bytes, root.start + root.bytes);
            const size = (to - from) * scale;
            if (to <= from || size < 0.4) return;
            call(node, at, { x: SIDE + (from - root.start) * scale, y, width: size, height: ROW - 1 });
        });
    }

    paint(pen: Pen): void {
        const shown = theme();
        pen.rect({ x: 0, y: 0, width: this.surface.width, height: this.surface.height }, BACKGROUND[shown]);
        if (this.#nodes.length === 0 || this.#nodes[0].bytes === 0) {
            pen.text(SIDE, 22, this.#key === '' ? '' : 'Nothing is allocated here.', { fill: MUTED[shown], size: 12 });
            return;
        }
        const found = this.#found;
        const root = this.#nodes[this.#root];
        this.#each((node, at, box) => {
            const isMeant = found ? found.has(node.label) : node.depth >= root.depth;
            let fill = isMeant ? node[shown] : mix(node[shown], BACKGROUND[shown], 0.35);
            if (at === this.#hover) fill = mix(fill, shown === 'light' ? '#000000' : '#FFFFFF', 0.8);
            pen.rect({ ...box, width: Math.max(0.5, box.width - (box.width > 3 ? 1 : 0)) }, fill);
            if (box.width > 34) {
                const text = fitting(pen, name(node.label, 160), box.width - 8, true);
                if (text) pen.text(box.x + 4, box.y + 13, text, { fill: onTop(fill), size: 10.5, mono: true });
            }
        });
        if (this.lane.second) pen.text(this.surface.width - 20, 16, 'B', { fill: MUTED[shown], bold: true });
    }

    #point(event: PointerEvent): void {
        const bounds = this.surface.canvas.getBoundingClientRect();
        const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
        this.#hover = -1;
        this.#each((_, at, box) => {
            if (x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + ROW) this.#hover = at;
        });
        this.surface.invalidate();
        const node = this.#nodes[this.#hover];
        if (!node) {
            this.tip.hide();
            return;
        }
        const lines = [
            { text: name(node.label, 300), colour: node, strong: true },
            {
                text: `${bytes(node.bytes)}  ${share(node.bytes, this.#nodes[0].bytes)} in ${whole(node.blocks)} blocks`,
            },
        ];
        if (node.own_bytes > 0 && node.own_bytes < node.bytes)
            lines.push({ ...lines[1], text: `${bytes(node.own_bytes)} allocated by this frame itself` });
        this.tip.show(event.clientX, event.clientY, lines);
    }

    /** Goes to the next frame in the order of a table of contents: a callee, else what is beside. */
    #next(step: 1 | -1): void {
        const root = this.#nodes[this.#root];
        if (!root) return;
        let at = this.#hover < 0 ? this.#root : this.#hover + step;
        // As narrow as #each leaves out.
        const least = (0.4 * root.bytes) / Math.max(10, this.surface.width - 2 * SIDE);
        while (this.#nodes[at] && this.#nodes[at].bytes < least) at += step;
        const node = this.#nodes[at];
        const isInside = node && node.start < root.start + root.bytes && node.start + node.bytes > root.start;
        if (!isInside) return;
        this.#hover = at;
        this.#scrolled.reveal(node.depth * ROW, ROW);
        this.surface.invalidate();
    }

    /** Looks closer at the frame under the pointer; at the one that takes the whole width, looks from further away. */
    #click(): void {
        const node = this.#nodes[this.#hover];
        if (!node) return;
        const isRoot = this.#hover === this.#root;
        const path = this.#path(this.#hover);
        this.#root = isRoot && path.length > 1 ? this.#nodes.indexOf(path[path.length - 2]) : this.#hover;
        const facts: [string, string][] = [
            ['live', `${bytes(node.bytes)}  ${share(node.bytes, this.#nodes[0].bytes)}`],
            ['exactly', `${whole(node.bytes)} bytes`],
            ['allocated by this frame itself', bytes(node.own_bytes)],
            ['blocks', whole(node.blocks)],
        ];
        this.details.frames(
            this.lane,
            node.label,
            facts,
            path
                .slice(1)
                .map((each) => each.label)
                .reverse(),
        );
        this.surface.invalidate();
    }
}

export class FlameView implements View {
    readonly tab = 'flame';
    readonly title = 'Flame graph';
    readonly panel = element('div', { class: 'panel lanes' });
    readonly drawn: readonly Icicle[];

    constructor(lanes: readonly Lane[], details: Details, tip: Tip, fail: (error: unknown) => void) {
        const hosts = lanes.map(() => element('div'));
        this.panel.append(...hosts);
        this.drawn = lanes.map((lane, at) => new Icicle(hosts[at], lane, details, tip, fail));
    }

    show(): void {
        for (const each of this.drawn) {
            each.fetch();
            each.surface.invalidate();
        }
    }
}
