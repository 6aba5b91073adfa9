/** A drag over a plot that chooses a range of instants, and how the chosen range is drawn. */

import { ACCENT, type Theme } from './colors.ts';
import { counted, duration, entry } from './format.ts';
import type { Lane } from './lane.ts';
import type { Ranged } from './navigate.ts';
import type { Pen } from './pen.ts';
import { fromX, type Plot, toX } from './plot.ts';
import type { Surface } from './surface.ts';
import type { Tip } from './tip.ts';

export class RangeDrag implements Ranged {
    /** The instants of the drag. */
    #dragged: [from: number, to: number] | null = null;

    constructor(
        private readonly lane: Lane,
        private readonly tip: Tip,
        private readonly plot: () => Plot,
        private readonly surface: () => Surface,
    ) {}

    drag(from: number, to: number, isOver: boolean): void {
        const { lane } = this;
        const plot = this.plot();
        const { box } = plot;
        const instant = (x: number) => {
            const within = Math.min(Math.max(x, box.x), box.x + box.width);
            return lane.recording.instant(lane.device.device, fromX(plot, within), lane.store.state.axis);
        };
        const [first, last] = [instant(Math.min(from, to)), instant(Math.max(from, to))];
        this.#dragged = isOver ? null : [first, last];
        if (isOver) {
            this.tip.hide();
            lane.store.set(first < last ? { mark: first, at: last } : { mark: null });
        } else this.#show(first, last, to);
        this.surface().invalidate();
    }

    cancel(): void {
        this.#dragged = null;
        this.tip.hide();
        this.surface().invalidate();
    }

    #show(from: number, to: number, x: number): void {
        const { device, recording } = this.lane;
        const time = recording.figures.has_times
            ? `, ${duration(recording.x(device.device, to, 'time') - recording.x(device.device, from, 'time'))}`
            : '';
        const bounds = this.surface().canvas.getBoundingClientRect();
        const { box } = this.plot();
        this.tip.show(bounds.left + x, bounds.top + box.y + box.height / 2, [
            { text: `${counted(to - from, 'entry', 'entries')}${time}`, strong: true },
            { text: `${entry(from)} to ${entry(to)}` },
        ]);
    }

    /** Draws the chosen range, or the range of the drag. */
    paint(pen: Pen, plot: Plot, shown: Theme): void {
        const range = this.#dragged ?? this.lane.range;
        if (!range) return;
        const { box } = plot;
        const [left, right] = range.map((instant) => toX(plot, this.lane.x(instant)));
        pen.rect({ x: left, y: box.y, width: Math.max(1, right - left), height: box.height }, ACCENT[shown], 0.14);
        pen.rect({ x: left, y: box.y + box.height, width: Math.max(1, right - left), height: 3 }, ACCENT[shown]);
    }
}

/** A click ends a range, unless the range has only begun. */
export function endRange({ range, store }: Lane): void {
    if (range && range[0] < range[1]) store.set({ mark: null });
}
