/** A plot of bytes over instants or time: its positions, and its axes. */

import type { Axis, Folds } from '../engine/engine.d.ts';
import { BACKGROUND, GRID, MUTED, TEXT, type Theme } from './colors.ts';
import { foldedAt, foldedTicks } from './folds.ts';
import { duration, whole } from './format.ts';
import type { Box, Pen } from './pen.ts';

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

/** A label of an axis. */
export interface Tick {
    at: number;
    text: string;
}

/** The distance of labels of an axis, no more than `most`, in its unit. */
function tickStep(axis: Axis, length: number, most: number): number {
    const step = round(Math.max(length / unitOf(axis) / Math.max(most, 1), 1e-9));
    return axis === 'entry' ? Math.max(1, step) : step;
}

function unitOf(axis: Axis): number {
    return axis === 'entry' ? 1 : 1e6;
}

/** Labels of an axis between two x, no more than `most`: entries, seconds, or completed steps. */
export function axisTicks(axis: Axis, from: number, to: number, most: number, step = tickStep(axis, to - from, most)): Tick[] {
    const unit = unitOf(axis);
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
    folded: (_, written) => `${written} s`,
    step: (value, written) => `${written} ${value === 1 ? 'step' : 'steps'}`,
};

/** Draws the grid of a plot and the labels of its axes. */
export function drawAxes(pen: Pen, plot: Plot, folds: Folds, axis: Axis, theme: Theme): void {
    const { box } = plot;
    const [grid, muted] = [GRID[theme], MUTED[theme]];
    for (const { at, text } of byteTicks(plot.top, box.height / 36)) {
        const y = Math.round(toY(plot, at)) + 0.5;
        pen.rect({ x: box.x, y: y - 0.5, width: box.width, height: 1 }, grid, 0.45);
        pen.text(box.x - 8, y + 4, text, { fill: muted, anchor: 'end' });
    }
    const most = box.width / 110;
    const step = tickStep(axis, plot.to - plot.from, most);
    const times = (from: number, to: number) => axisTicks('time', from, to, most, step);
    const ticks = axis === 'folded' ? foldedTicks(folds, plot.from, plot.to, times) : axisTicks(axis, plot.from, plot.to, most);
    const taken = axis === 'folded' ? drawFolds(pen, plot, folds, theme) : [];
    for (const { at, text } of ticks) {
        const x = Math.round(toX(plot, at)) + 0.5;
        const half = pen.measure(text, { fill: muted }) / 2;
        if (taken.some(([left, right]) => x + half > left - 6 && x - half < right + 6)) continue;
        pen.line([x, box.y + box.height, x, box.y + box.height + 4], { stroke: muted });
        const last = box.x + box.width + RIGHT - half;
        pen.text(Math.min(x, last), box.y + box.height + 15, text, { fill: muted, anchor: 'middle' });
    }
}

/** Marks shortened periods and says how long they are; returns where the texts start and end. */
function drawFolds(pen: Pen, plot: Plot, folds: Folds, theme: Theme): [left: number, right: number][] {
    const { box } = plot;
    const bottom = box.y + box.height;
    const taken: [number, number][] = [];
    for (const [from, to] of folds.periods) {
        const [left, right] = [from, to].map((time) => toX(plot, foldedAt(folds, time)));
        if (right <= box.x || left >= box.x + box.width) continue;
        pen.within({ ...box, height: box.height + 8 }, () => {
            pen.rect({ x: left, y: box.y, width: right - left, height: box.height }, BACKGROUND[theme], 0.6);
            for (const x of [(left + right) / 2 - 2, (left + right) / 2 + 2])
                pen.line([x - 2.5, bottom + 5, x + 2.5, bottom - 5], { stroke: TEXT[theme] });
        });
        const style = { fill: MUTED[theme], anchor: 'middle' } as const;
        const text = `idle ${duration(to - from)}`;
        const half = pen.measure(text, style) / 2;
        const middle = Math.min(Math.max((left + right) / 2, box.x + half), box.x + box.width - half);
        if (taken.some(([, end]) => middle - half < end + 6)) continue;
        pen.text(middle, bottom + 15, text, style);
        taken.push([middle - half, middle + half]);
    }
    return taken;
}
