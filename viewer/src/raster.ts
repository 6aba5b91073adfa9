/** Images of answers, one pixel wide for each column: written once for each answer, then moved and scaled in every frame. */

import { channels } from './colors.ts';
import { type Plot, toX } from './plot.ts';
import type { Stretch } from './stacked.ts';
import type { Surface } from './surface.ts';

/**
 * The buffer for pixels, one image at a time. An image has megabytes, and zooming draws dozens in a second: separate
 * buffers would become garbage long before it is collected.
 */
let scratch = new ArrayBuffer(0);

/** A color as an opaque pixel. */
export function pixel(hex: string): number {
    const [red, green, blue] = channels(hex);
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export class Raster {
    #canvas = new OffscreenCanvas(1, 1);
    #context = this.#canvas.getContext('2d', { alpha: false })!;
    #columns = 1;
    /** The content of the image, and its colors. */
    #of: object | null = null;
    #look = '';

    /** Calls `paint` to write the pixels, row by row, unless they already show this. */
    show(of: object, look: string, columns: number, height: number, paint: (pixels: Uint32Array) => void): void {
        if (this.#of === of && this.#look === look) return;
        const size = 4 * columns * height;
        if (scratch.byteLength < size) scratch = new ArrayBuffer(size + (size >> 2));
        paint(new Uint32Array(scratch, 0, columns * height));
        if (this.#canvas.width < columns || this.#canvas.height !== height) {
            this.#canvas.width = columns + (columns >> 3);
            this.#canvas.height = height;
        }
        this.#context.putImageData(new ImageData(new Uint8ClampedArray(scratch, 0, size), columns, height), 0, 0);
        [this.#of, this.#look, this.#columns] = [of, look, columns];
    }

    /** Draws the image at the position of its columns in a plot. */
    blit({ context }: Surface, plot: Plot, stretch: Stretch): void {
        const { box } = plot;
        const left = toX(plot, stretch.from);
        const width = toX(plot, stretch.to) - left;
        context.save();
        context.beginPath();
        context.rect(box.x, box.y, box.width, box.height);
        context.clip();
        context.imageSmoothingEnabled = false;
        context.drawImage(this.#canvas, 0, 0, this.#columns, this.#canvas.height, left, box.y, width, box.height);
        context.restore();
    }
}
