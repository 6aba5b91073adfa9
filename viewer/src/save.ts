/** Saves the visible pictures: the timeline, and the view below it if that is a picture, as SVG or PNG. */

import { CanvasPen, type Pen, SvgPen } from './pen.ts';
import { BACKGROUND, MUTED, TEXT } from './colors.ts';
import { element } from './dom.ts';
import { name } from './format.ts';
import { theme } from './theme.ts';
import type { Drawn } from './view.ts';

const HEAD = 46;

/** A picture and its heading. */
export interface Sheet {
    title: string;
    subtitle: string;
    drawn: readonly Drawn[];
}

function size(sheet: Sheet): { width: number; height: number } {
    return {
        width: Math.max(...sheet.drawn.map(({ surface }) => surface.width)),
        height: sheet.drawn.reduce((sum, { surface }) => sum + surface.height, HEAD),
    };
}

function head(pen: Pen, sheet: Sheet, width: number): void {
    const shown = theme();
    pen.rect({ x: 0, y: 0, width, height: HEAD }, BACKGROUND[shown]);
    pen.text(14, 20, name(sheet.title, 140), { fill: TEXT[shown], size: 14, bold: true });
    pen.text(14, 38, name(sheet.subtitle, 180), { fill: MUTED[shown], size: 11.5 });
}

/** Draws with another origin. */
function moved(pen: SvgPen, y: number, drawn: Drawn): string {
    drawn.paint(pen);
    return pen.part(y);
}

export function svg(sheet: Sheet): Blob {
    const { width, height } = size(sheet);
    const first = new SvgPen();
    head(first, sheet, width);
    const parts = [first.part(0)];
    let y = HEAD;
    sheet.drawn.forEach((drawn, at) => {
        parts.push(moved(new SvgPen(`p${at}`), y, drawn));
        y += drawn.surface.height;
    });
    return new Blob([SvgPen.finish(parts, width, height)], { type: 'image/svg+xml' });
}

/** The size on the screen, at twice the resolution: text stays sharp. */
export async function png(sheet: Sheet): Promise<Blob> {
    const { width, height } = size(sheet);
    const canvas = element('canvas');
    [canvas.width, canvas.height] = [2 * width, 2 * height];
    const context = canvas.getContext('2d')!;
    const pen = new CanvasPen(context);
    context.scale(2, 2);
    head(pen, sheet, width);
    let y = HEAD;
    for (const drawn of sheet.drawn) {
        context.save();
        context.translate(0, y);
        drawn.paint(pen);
        context.restore();
        y += drawn.surface.height;
    }
    return new Promise((resolve, reject) => {
        canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the picture is too large'))), 'image/png');
    });
}

/** Offers a file for download. */
export function download(blob: Blob, file: string): void {
    const link = element('a', { download: file });
    link.href = URL.createObjectURL(blob);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
