/** What views draw with: a canvas for the screen, or an SVG for files. Both show the same. */

export interface TextStyle {
    fill: string;
    size?: number;
    anchor?: 'start' | 'middle' | 'end';
    bold?: boolean;
    mono?: boolean;
}

export interface LineStyle {
    stroke: string;
    width?: number;
    dash?: number[];
}

/** A rectangle in pixels. */
export interface Box {
    x: number;
    y: number;
    width: number;
    height: number;
}

export interface Pen {
    rect(box: Box, fill: string, opacity?: number): void;
    outline(box: Box, style: LineStyle): void;
    line(points: readonly number[], style: LineStyle): void;
    area(points: readonly number[], fill: string, opacity?: number): void;
    text(x: number, y: number, text: string, style: TextStyle): void;
    /** The width of a text. */
    measure(text: string, style: TextStyle): number;
    /** Draws only within a box. */
    within(box: Box, draw: () => void): void;
}

const SANS = 'ui-sans-serif, system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
const MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';

function font(style: TextStyle): string {
    return `${style.bold ? '600 ' : ''}${style.size ?? 11}px ${style.mono ? MONO : SANS}`;
}

export class CanvasPen implements Pen {
    constructor(readonly context: CanvasRenderingContext2D) {}

    rect(box: Box, fill: string, opacity = 1): void {
        this.context.globalAlpha = opacity;
        this.context.fillStyle = fill;
        this.context.fillRect(box.x, box.y, box.width, box.height);
        this.context.globalAlpha = 1;
    }

    outline(box: Box, style: LineStyle): void {
        this.#stroke(style);
        this.context.strokeRect(box.x, box.y, box.width, box.height);
    }

    line(points: readonly number[], style: LineStyle): void {
        this.#stroke(style);
        this.#path(points);
        this.context.stroke();
    }

    area(points: readonly number[], fill: string, opacity = 1): void {
        this.context.globalAlpha = opacity;
        this.context.fillStyle = fill;
        this.#path(points);
        this.context.fill();
        this.context.globalAlpha = 1;
    }

    text(x: number, y: number, text: string, style: TextStyle): void {
        this.context.font = font(style);
        this.context.textAlign = style.anchor === 'middle' ? 'center' : (style.anchor ?? 'start');
        this.context.fillStyle = style.fill;
        this.context.fillText(text, x, y);
    }

    measure(text: string, style: TextStyle): number {
        this.context.font = font(style);
        return this.context.measureText(text).width;
    }

    within(box: Box, draw: () => void): void {
        this.context.save();
        this.context.beginPath();
        this.context.rect(box.x, box.y, box.width, box.height);
        this.context.clip();
        draw();
        this.context.restore();
    }

    #stroke(style: LineStyle): void {
        this.context.strokeStyle = style.stroke;
        this.context.lineWidth = style.width ?? 1;
        this.context.setLineDash(style.dash ?? []);
    }

    #path(points: readonly number[]): void {
        this.context.beginPath();
        for (let at = 0; at < points.length; at += 2) this.context.lineTo(points[at], points[at + 1]);
    }
}

/** Two decimals: finer differences are invisible. */
function round(value: number): string {
    return String(Math.round(value * 100) / 100);
}

function escape(text: string): string {
    return text.replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt(0)};`);
}

export class SvgPen implements Pen {
    /** IDs within a document start with `prefix`. */
    constructor(private readonly prefix = '') {}

    #body: string[] = [];
    #clips = 0;
    #ruler = new OffscreenCanvas(1, 1).getContext('2d')!;

    rect(box: Box, fill: string, opacity = 1): void {
        this.#body.push(`<rect ${this.#box(box)} fill="${fill}"${this.#opacity(opacity)}/>`);
    }

    outline(box: Box, style: LineStyle): void {
        this.#body.push(`<rect ${this.#box(box)} fill="none" ${this.#stroke(style)}/>`);
    }

    line(points: readonly number[], style: LineStyle): void {
        this.#body.push(`<polyline points="${this.#points(points)}" fill="none" ${this.#stroke(style)}/>`);
    }

    area(points: readonly number[], fill: string, opacity = 1): void {
        this.#body.push(`<polygon points="${this.#points(points)}" fill="${fill}"${this.#opacity(opacity)}/>`);
    }

    text(x: number, y: number, text: string, style: TextStyle): void {
        const weight = style.bold ? ' font-weight="600"' : '';
        const family = style.mono ? ` font-family="${escape(MONO)}"` : '';
        const place = `x="${round(x)}" y="${round(y)}" text-anchor="${style.anchor ?? 'start'}"`;
        const look = `fill="${style.fill}" font-size="${style.size ?? 11}"${weight}${family}`;
        this.#body.push(`<text ${place} ${look} xml:space="preserve">${escape(text)}</text>`);
    }

    measure(text: string, style: TextStyle): number {
        this.#ruler.font = font(style);
        return this.#ruler.measureText(text).width;
    }

    within(box: Box, draw: () => void): void {
        const id = `${this.prefix}clip${this.#clips++}`;
        this.#body.push(`<clipPath id="${id}"><rect ${this.#box(box)}/></clipPath><g clip-path="url(#${id})">`);
        draw();
        this.#body.push('</g>');
    }

    /** The drawing, moved down. */
    part(y: number): string {
        return `<g transform="translate(0 ${round(y)})">\n${this.#body.join('\n')}\n</g>`;
    }

    /** The whole picture. */
    static finish(parts: readonly string[], width: number, height: number): string {
        const size = `width="${round(width)}" height="${round(height)}" viewBox="0 0 ${round(width)} ${round(height)}"`;
        return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${escape(SANS)}">\n${parts.join('\n')}\n</svg>\n`;
    }

    #box(box: Box): string {
        return `x="${round(box.x)}" y="${round(box.y)}" width="${round(box.width)}" height="${round(box.height)}"`;
    }

    #opacity(opacity: number): string {
        return opacity === 1 ? '' : ` fill-opacity="${opacity}"`;
    }

    #stroke(style: LineStyle): string {
        const dash = style.dash ? ` stroke-dasharray="${style.dash.join(' ')}"` : '';
        return `stroke="${style.stroke}" stroke-width="${style.width ?? 1}"${dash}`;
    }

    #points(points: readonly number[]): string {
        return points.map(round).join(' ');
    }
}
