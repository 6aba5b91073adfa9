/** A plot of bytes over instants or time: its positions, and its axes. */

import type { Axis } from '../engine/engine.d.ts';
import type { Box, Pen } from './pen.ts';
import { GRID, MUTED, type Theme } from './colors.ts';
import { whole } from './format.ts';

/** The left edge of every plot, so that plots below each other share their x. */
export const LEFT = 68;
export const RIGHT = 14;

export interface Plot {
    box: Box;
    from: number;
    to: number;
    /** Bytes at the upper edge. */
    top: number;
}

export function toX(plot: Plot, x: number): number {
    return plot.box.x + ((x - plot.from) / (plot.to - plot.from)) * plot.box.width;
}

export function fromX(plot: Plot, pixel: number): number {
    return plot.from + ((pixel - plot.box.x) / plot.box.width) * (plot.to - plot.from);
}

export function toY(plot: Plot, bytes: number): number {
    return plot.box.y + plot.box.height * (1 - bytes / plot.top);
}

export function fromY(plot: Plot, pixel: number): number {
    return (1 - (pixel - plot.box.y) / plot.box.height) * plot.top;
}

export function isInside(box: Box, x: number, y: number): boolean {
    return x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
}

/** 1, 2 or 5 times a power of ten: the smallest that is at least `value`. */
function round(value: number): number {
    const power = 10 ** Math.floor(Math.log10(value));
    const factor = [1, 2, 5, 10].find((each) => each * power >= value * (1 - 1e-9)) ?? 10;
    return factor * power;
}

/** Labels of bytes up to `top`, no more than `most`. */
export function byteTicks(top: number, most: number): { at: number; text: string }[] {
    const power = top < 1024 ** 2 ? 1 : top < 1024 ** 3 ? 2 : 3;
    const unit = 1024 ** power;
    const step = round(Math.max(top / unit / Math.max(most, 1), 1e-3));
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    for (let count = 0; count * step * unit <= top; count++) {
        ticks.push({
            at: count * step * unit,
            text: `${(count * step).toFixed(digits)} ${['', 'KiB', 'MiB', 'GiB'][power]}`,
        });
    }
    return ticks;
}

/** Labels of an axis between two x, no more than `most`: entries, seconds, or completed steps. */
export function axisTicks(axis: Axis, from: number, to: number, most: number): { at: number; text: string }[] {
    const unit = axis === 'entry' ? 1 : 1e6;
    let step = round(Math.max((to - from) / unit / Math.max(most, 1), 1e-9));
    if (axis === 'entry') step = Math.max(1, step);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    // Adding 0 turns -0 into 0.
    const first = Math.ceil(from / unit / step - 1e-9) + 0;
    for (let count = first; count * step * unit <= to && ticks.length <= most + 1; count++) {
        const value = count * step;
        ticks.push({ at: value * unit, text: labels[axis](value, value.toFixed(digits)) });
    }
    return ticks;
}

/** The text of an axis for a value, which is also given with as many digits as needed. */
const labels: Record<Axis, (value: number, written: string) => string> = {
    entry: (value) => whole(value),
    time: (_, written) => `${written} s`,
    step: (value, written) => `${written} ${value === 1 ? 'step' : 'steps'}`,
};

/** Draws the grid of a plot and the labels of its axes. */
export function drawAxes(pen: Pen, plot: Plot, axis: Axis, theme: Theme): void {
    const { box } = plot;
    const [grid, muted] = [GRID[theme], MUTED[theme]];
    for (const { at, text } of byteTicks(plot.top, box.height / 36)) {
        const y = Math.round(toY(plot, at)) + 0.5;
        pen.rect({ x: box.x, y: y - 0.5, width: box.width, height: 1 }, grid, 0.45);
        pen.text(box.x - 8, y + 4, text, { fill: muted, anchor: 'end' });
    }
    for (const { at, text } of axisTicks(axis, plot.from, plot.to, box.width / 110)) {
        const x = Math.round(toX(plot, at)) + 0.5;
        pen.line([x, box.y + box.height, x, box.y + box.height + 4], { stroke: muted });
        const last = box.x + box.width + RIGHT - pen.measure(text, { fill: muted }) / 2;
        pen.text(Math.min(x, last), box.y + box.height + 15, text, { fill: muted, anchor: 'middle' });
    }
}
