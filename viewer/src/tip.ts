/** A tooltip next to the pointer about what is under it. */

import type { Frame } from '../engine/engine.d.ts';
import type { Color } from './colors.ts';
import { element, swatch } from './dom.ts';
import { counted, name } from './format.ts';
import { hasSources, lineOf } from './sources.ts';

/** Milliseconds after which a resting pointer requests a stack. */
const REST = 250;
/** The most frames of a stack in the tooltip. */
const FRAMES = 16;

export interface TipLine {
    text: string;
    color?: Color;
    strong?: boolean;
}

/**
 * A stack, innermost frame first, the user's own frames in bold, with their lines if these are known. If so many frames of
 * libraries come before the first of these that it would not be visible, they are omitted.
 */
export async function stackLines(frames: readonly Frame[]): Promise<TipLine[]> {
    if (frames.length === 0) return [{ text: 'no stack was recorded' }];
    const own = frames.findIndex((frame) => frame.own);
    const first = own < FRAMES ? 0 : own;
    const lines: TipLine[] = first > 0 ? [{ text: `${counted(first, 'library frame')}, called by` }] : [];
    for (const frame of frames.slice(first, first + FRAMES)) {
        lines.push({ text: name(frame.label), strong: frame.own });
        const line = frame.own && hasSources() ? await lineOf(frame).catch(() => null) : null;
        if (line !== null) lines.push({ text: `    ${line}` });
    }
    const more = frames.length - first - FRAMES;
    if (more > 0) lines.push({ text: counted(more, 'more frame') });
    return lines;
}

export class Tip {
    #timer = 0;
    #box = element('div', { class: 'tip', role: 'tooltip', hidden: '' });

    constructor() {
        // There is one pointer: the tooltip of the previous recordings is removed.
        document.querySelector('.tip')?.remove();
        document.body.append(this.#box);
    }

    /** Shows lines next to a point of the window, and further ones once the pointer rests there. */
    show(x: number, y: number, lines: readonly TipLine[], ask?: () => Promise<readonly TipLine[]>): void {
        clearTimeout(this.#timer);
        this.#draw(x, y, lines);
        if (!ask) return;
        const timer = window.setTimeout(async () => {
            const more = await ask().catch(() => []);
            if (this.#timer === timer) this.#draw(x, y, [...lines, ...more]);
        }, REST);
        this.#timer = timer;
    }

    #draw(x: number, y: number, lines: readonly TipLine[]): void {
        const rows = lines.map((line) => {
            const row = element('div', line.strong ? { class: 'strong' } : {});
            if (line.color) row.append(swatch(line.color));
            row.append(line.text);
            return row;
        });
        this.#box.replaceChildren(...rows);
        this.#box.hidden = false;
        const { width, height } = this.#box.getBoundingClientRect();
        const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
        const top = y + 16 + height > innerHeight ? y - height - 12 : y + 16;
        this.#box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
    }

    hide(): void {
        clearTimeout(this.#timer);
        this.#timer = 0;
        this.#box.hidden = true;
    }
}
