/** A surface that shows a part of a higher drawing, which is scrolled. */

import { element } from './dom.ts';
import { Surface } from './surface.ts';

export class Scrolled {
    readonly surface: Surface;
    readonly #space = element('div', { class: 'space' });
    readonly #frame = element('div', { class: 'frame' });

    constructor(
        private readonly host: HTMLElement,
        gone: AbortSignal,
        draw: () => void,
        resized: () => void = () => {},
    ) {
        host.classList.add('scrolled');
        host.append(this.#frame, this.#space);
        this.surface = new Surface(this.#frame, gone, draw, resized);
        host.addEventListener('scroll', () => this.surface.invalidate());
    }

    /** The scroll position, in pixels. */
    get offset(): number {
        return this.host.scrollTop;
    }

    /** Scrolls as little as needed to make a part visible. */
    reveal(y: number, height: number): void {
        const { scrollTop, clientHeight } = this.host;
        if (y < scrollTop) this.host.scrollTop = y;
        else if (y + height > scrollTop + clientHeight) this.host.scrollTop = y + height - clientHeight;
    }

    /** The height of the whole drawing. Browsers limit it to some million pixels. */
    set height(pixels: number) {
        this.#space.style.height = `${Math.min(pixels, 8e6)}px`;
    }
}
