/** Bytes by stack as an icicle: the root on top, callees below. A click zooms in. */

import type { FlameNode } from '../engine/engine.d.ts';
import { choosable } from './chosen.ts';
import { Latest } from './client.ts';
import { BACKGROUND, mix, MUTED, onTop, TEXT } from './colors.ts';
import type { Details } from './details.ts';
import { OF } from './flamed.ts';
import { bytes, counted, growth, name, share, whole } from './format.ts';
import type { Lane } from './lane.ts';
import { byFunction, merged, type MergedNode } from './merged.ts';
import type { Pen } from './pen.ts';
import { fitting } from './ribbons.ts';
import { Scrolled } from './scrolled.ts';
import { sandwich } from './sandwich.ts';
import { matching } from './search.ts';
import { type FlameOf, touches } from './state.ts';
import type { Surface } from './surface.ts';
import { theme } from './theme.ts';
import type { Tip } from './tip.ts';
import type { Drawn } from './view.ts';

const ROW = 19;
const SIDE = 14;

/** A flame graph of a recording, or of both if it shows their difference. */
export class Icicle implements Drawn {
    readonly surface: Surface;
    readonly #scrolled: Scrolled;
    #latest = new Latest();
    #nodes: (FlameNode | MergedNode)[] = [];
    /** Labels that the search finds. */
    #found: ReadonlySet<string> | null = null;
    #query = '';
    #key = '';
    /** The node that has the whole width, by its place. */
    #root = 0;
    #hover = -1;

    constructor(
        private readonly host: HTMLElement,
        private readonly lane: Lane,
        private readonly lanes: readonly Lane[],
        /** The current content. */
        private readonly of: () => FlameOf,
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
        canvas.setAttribute('aria-label', 'Flame graph of bytes; the table by stack shows the same as rows');
        canvas.addEventListener('pointermove', (event) => this.#point(event));
        canvas.addEventListener('pointerleave', () => {
            this.#hover = -1;
            tip.hide();
            this.surface.invalidate();
        });
        canvas.addEventListener('click', () => this.#click());
        lane.store.subscribe((state, changed) => {
            if (state.tab !== 'flame') return;
            if (touches(changed, 'at', 'at2', 'mark', 'flame', 'around', 'device', 'metric', 'tab', 'query')) this.fetch();
            this.surface.invalidate();
        });
    }

    fetch(): void {
        const { metric, query } = this.lane.store.state;
        // The difference of two recordings is one picture, in place of both.
        if (this.host.hidden) return;
        const of = this.of();
        const places = this.lanes.map((lane) => [lane.device.device, lane.at, ...(lane.range ?? [])]);
        const key = [of, metric, this.#around, ...(of === 'difference' ? places.flat() : this.#places(of))].join();
        if (key === this.#key && query === this.#query) return;
        this.#latest.run(async () => {
            try {
                if (key !== this.#key) {
                    const path = this.#path(this.#root).map((node) => node.label);
                    const around = this.#around;
                    const all = await this.#ask(of);
                    this.#nodes = around === '' ? all : sandwich(all, around);
                    this.#key = key;
                    this.#root = around === '' ? this.#follow(path) : 0;
                    this.#hover = -1;
                    const isAround = around !== '' && this.#nodes.length > 0;
                    const deepest = this.#nodes.reduce((most, node) => Math.max(most, node.depth), 0);
                    this.#scrolled.height = (deepest + 2) * ROW;
                    if (isAround) this.#scrolled.reveal(this.#nodes[0].depth * ROW, 6 * ROW);
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

    /** The function whose callers and callees are shown: not if two trees are merged. */
    get #around(): string {
        return this.of() === 'difference' ? '' : this.lane.store.state.around;
    }

    /** The instants that a flame graph without a difference depends on. */
    #places(of: FlameOf): number[] {
        const { at, device, range } = this.lane;
        return [device.device, ...(range && of !== 'live' ? range : [at])];
    }

    async #ask(of: FlameOf): Promise<(FlameNode | MergedNode)[]> {
        const { metric } = this.lane.store.state;
        const live = (lane: Lane, instant: number) =>
            lane.recording.client.ask('flame', [lane.device.device, metric, instant]);
        const { at, range, recording, device } = this.lane;
        if (of === 'live') return live(this.lane, at);
        if (of === 'difference') {
            const ends = range ? range.map((instant) => live(this.lane, instant)) : this.lanes.map((lane) => live(lane, lane.at));
            const [before, after] = await Promise.all(ends);
            return range ? merged(before, after) : merged(before, after, byFunction);
        }
        return range ? recording.client.ask('flame_of_range', [device.device, metric, ...range, of]) : [];
    }

    /** A node and the nodes that contain it, the outermost first. */
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

    /** Calls `each` for every visible node. */
    #each(
        call: (node: FlameNode | MergedNode, at: number, box: { x: number; y: number; width: number; height: number }) => void,
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
            pen.text(SIDE, 22, this.#key === '' ? '' : this.#around === '' ? OF[this.of()].none : 'This function holds no memory here.', { fill: MUTED[shown], size: 12 });
            return;
        }
        const found = this.#found;
        const root = this.#nodes[this.#root];
        this.#each((node, at, box) => {
            const isSeen = node.depth >= root.depth || this.#around !== '';
            const isMeant = found ? found.has(node.label) : isSeen;
            let fill = isMeant ? node[shown] : mix(node[shown], BACKGROUND[shown], 0.35);
            if (at === this.#hover) fill = mix(fill, shown === 'light' ? '#000000' : '#FFFFFF', 0.8);
            pen.rect({ ...box, width: Math.max(0.5, box.width - (box.width > 3 ? 1 : 0)) }, fill);
            if (at === 0 && this.#around !== '') pen.outline(box, { stroke: TEXT[shown], width: 2 });
            if (box.width > 34) {
                const style = { fill: onTop(fill), size: 10.5, mono: true };
                const size = 'before' in node ? changed(node.after.bytes - node.before.bytes) : bytes(node.bytes);
                const taken = pen.measure(size, style) + 10;
                // The name matters more: narrow frames have no size.
                const hasSize = box.width > 2 * taken;
                const text = fitting(pen, name(node.label, 160), box.width - 8 - (hasSize ? taken : 0), style);
                if (text) pen.text(box.x + 4, box.y + 13, text, style);
                if (hasSize) pen.text(box.x + box.width - 5, box.y + 13, size, { ...style, anchor: 'end' });
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
        const head = { text: name(node.label, 300), color: node, strong: true };
        this.tip.show(event.clientX, event.clientY, [head, ...this.#words(node).map((text) => ({ text }))]);
    }

    /** The bytes of a node, in words. */
    #words(node: FlameNode | MergedNode): string[] {
        if ('before' in node) {
            const { before, after } = node;
            return [`${bytes(before.bytes)} → ${bytes(after.bytes)}`, changed(after.bytes - before.bytes)];
        }
        const words = [`${bytes(node.bytes)}  ${share(node.bytes, this.#nodes[0].bytes)} in ${counted(node.blocks, 'block')}`];
        if (node.own_bytes > 0 && node.own_bytes < node.bytes)
            words.push(`${bytes(node.own_bytes)} allocated by this frame itself`);
        return words;
    }

    /** The same for the details, with exact bytes. */
    #facts(node: FlameNode | MergedNode): [string, string][] {
        if ('before' in node) {
            const { before, after } = node;
            const held = (of: typeof before) => `${bytes(of.bytes)} (${whole(of.bytes)}) in ${counted(of.blocks, 'block')}`;
            const own = after.own_bytes - before.own_bytes;
            const [first, second] = this.lanes.length > 1 ? ['in A', 'in B'] : ['before', 'after'];
            return [
                [first, held(before)],
                [second, held(after)],
                ['change', `${growth(after.bytes - before.bytes)} (${whole(after.bytes - before.bytes)} bytes)`],
                ['by this frame itself', growth(own)],
            ];
        }
        return [
            [OF[this.of()].words, `${bytes(node.bytes)}  ${share(node.bytes, this.#nodes[0].bytes)}`],
            ['exactly', `${whole(node.bytes)} bytes`],
            ['allocated by this frame itself', bytes(node.own_bytes)],
            ['blocks', whole(node.blocks)],
        ];
    }

    /** Goes to the next frame in the order of a table of contents: a callee, otherwise a neighbor. */
    #next(step: 1 | -1): void {
        const root = this.#nodes[this.#root];
        if (!root) return;
        let at = this.#hover < 0 ? this.#root : this.#hover + step;
        // As narrow as #each omits.
        const least = (0.4 * root.bytes) / Math.max(10, this.surface.width - 2 * SIDE);
        while (this.#nodes[at] && this.#nodes[at].bytes < least) at += step;
        const node = this.#nodes[at];
        const isInside = node && node.start < root.start + root.bytes && node.start + node.bytes > root.start;
        if (!isInside) return;
        this.#hover = at;
        this.#scrolled.reveal(node.depth * ROW, ROW);
        this.surface.invalidate();
    }

    /** Zooms in on the frame under the pointer; on the frame with the whole width, zooms out. */
    #click(): void {
        const node = this.#nodes[this.#hover];
        if (!node) return;
        const around = this.#around;
        if (around !== '') {
            // Every visible function can be shown with its callers and callees in turn.
            this.lane.store.set({ around: node.label });
            this.details.frames(this.lane, node.label, this.#facts(node), []);
            return;
        }
        const isRoot = this.#hover === this.#root;
        const path = this.#path(this.#hover);
        this.#root = isRoot && path.length > 1 ? this.#nodes.indexOf(path[path.length - 2]) : this.#hover;
        // A frame that only the second recording has belongs to that recording.
        const isOfSecond = 'before' in node && node.before.blocks === 0;
        this.details.frames(
            (isOfSecond && this.lanes[1]) || this.lane,
            node.label,
            this.#facts(node),
            path
                .slice(1)
                .map((each) => each.label)
                .reverse(),
            this.of() === 'difference' || node.depth === 0 ? null : byFunction(node.label),
        );
        this.surface.invalidate();
    }
}

/** By how much memory grew or shrank. */
function changed(change: number): string {
    return change === 0 ? 'no change' : growth(change);
}
