/** What the pointer is on, in words beside it. */

import type { Colour } from './colours.ts';
import { element, swatch } from './dom.ts';

export interface TipLine {
    text: string;
    colour?: Colour;
    strong?: boolean;
}

export class Tip {
    #box = element('div', { class: 'tip', role: 'tooltip', hidden: '' });

    constructor() {
        // There is one pointer: the tip of the recordings before these goes.
        document.querySelector('.tip')?.remove();
        document.body.append(this.#box);
    }

    /** Shows lines beside a point of the window. */
    show(x: number, y: number, lines: readonly TipLine[]): void {
        const rows = lines.map((line) => {
            const row = element('div', line.strong ? { class: 'strong' } : {});
            if (line.colour) row.append(swatch(line.colour));
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
        this.#box.hidden = true;
    }
}
