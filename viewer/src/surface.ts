/** A canvas that fills its element at the device's resolution and is drawn at most once per frame. */

import { CanvasPen } from './pen.ts';
import { onTheme } from './theme.ts';

const print = matchMedia('print');

export class Surface {
    readonly canvas = document.createElement('canvas');
    readonly context: CanvasRenderingContext2D;
    readonly pen: CanvasPen;
    width = 0;
    height = 0;
    /** Device pixels per CSS pixel. */
    ratio = 1;
    #asked = false;

    /** `draw` is called after a change, `resized` before that if the size has changed; neither after `gone`. */
    constructor(
        host: HTMLElement,
        gone: AbortSignal,
        private readonly draw: () => void,
        private readonly resized: () => void = () => {},
    ) {
        this.context = this.canvas.getContext('2d', { alpha: false })!;
        this.pen = new CanvasPen(this.context);
        host.append(this.canvas);
        const observer = new ResizeObserver(() => this.#resize(host));
        observer.observe(host);
        gone.addEventListener('abort', () => observer.disconnect(), { once: true });
        // On paper it has another size, and observers are notified too late.
        print.addEventListener('change', () => this.#resize(host), { signal: gone });
        onTheme(() => this.now(), gone);
    }

    /** Draws in the next frame. */
    invalidate(): void {
        if (this.#asked) return;
        this.#asked = true;
        requestAnimationFrame(() => this.now());
    }

    /** Draws at once: printing does not wait for a frame. */
    now(): void {
        this.#asked = false;
        if (this.width === 0 || this.height === 0) return;
        this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
        this.draw();
    }

    #resize(host: HTMLElement): void {
        const { clientWidth, clientHeight } = host;
        this.ratio = devicePixelRatio;
        [this.width, this.height] = [clientWidth, clientHeight];
        this.canvas.width = Math.round(clientWidth * this.ratio);
        this.canvas.height = Math.round(clientHeight * this.ratio);
        if (this.width === 0 || this.height === 0) return;
        this.resized();
        this.now();
    }
}
