/** Zooming and panning along x by wheel, drag, fingers and keys, and choosing a range, the same in every plot. */

import type { Plot } from './plot.ts';
import { fromX, isInside } from './plot.ts';
import type { Store } from './state.ts';

/** Least number of visible entries or microseconds. */
const LEAST = 8;

/** A range of x, limited to the extent. */
export function clamped(
    from: number,
    to: number,
    [first, end]: readonly [number, number],
): { from: number; to: number } {
    const span = Math.min(end - first, Math.max(Math.min(LEAST, end - first), to - from));
    const start = Math.min(Math.max(from, first), end - span);
    return { from: start, to: start + span };
}

export interface Navigated {
    canvas: HTMLCanvasElement;
    store: Store;
    plot: () => Plot;
    extent: () => readonly [number, number];
    hover: (x: number, y: number) => void;
    leave: () => void;
    click: (x: number, y: number, event: PointerEvent) => void;
    /** A drag without shift chooses a range instead of panning. */
    range?: Ranged;
}

/** The reactions to a drag that chooses a range. */
export interface Ranged {
    /** The drag extends from one x to another, in pixels; `isOver` when it ends. */
    drag: (from: number, to: number, isOver: boolean) => void;
    /** The drag was canceled. */
    cancel: () => void;
}

/** Zooms so that `x` stays in place; a factor above 1 shows less. */
export function zoom(store: Store, extent: readonly [number, number], x: number, factor: number): void {
    const { from, to } = store.state;
    const span = Math.max((to - from) / factor, Math.min(LEAST, extent[1] - extent[0]));
    const part = (x - from) / (to - from);
    store.set(clamped(x - part * span, x + (1 - part) * span, extent));
}

/** Pans by a fraction of the visible range. */
export function pan(store: Store, extent: readonly [number, number], part: number): void {
    const { from, to } = store.state;
    const offset = part * (to - from);
    store.set(clamped(from + offset, to + offset, extent));
}

export function navigate(target: Navigated): void {
    const { canvas, store } = target;
    const place = (event: MouseEvent): [number, number] => {
        const bounds = canvas.getBoundingClientRect();
        return [event.clientX - bounds.left, event.clientY - bounds.top];
    };

    canvas.addEventListener(
        'wheel',
        (event) => {
            const [x, y] = place(event);
            const plot = target.plot();
            if (!isInside({ ...plot.box, y: 0, height: Number.POSITIVE_INFINITY }, x, y)) return;
            event.preventDefault();
            const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
            const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
            if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
                pan(store, target.extent(), (sideways * pixels) / plot.box.width);
            } else {
                zoom(store, target.extent(), fromX(plot, x), Math.exp(-event.deltaY * pixels * 0.002));
            }
        },
        { passive: false },
    );

    let held: { x: number; from: number; to: number; moved: boolean; range: number | null } | null = null;
    let pinch: { at: number; gap: number; span: number } | null = null;
    const fingers = new Map<number, number>();
    /** The middle of two fingers, and their distance. */
    const both = (): [middle: number, gap: number] => {
        const [a, b] = [...fingers.values()];
        return [(a + b) / 2, Math.max(Math.abs(a - b), 1)];
    };
    const release = (event: PointerEvent) => {
        fingers.delete(event.pointerId);
        held = pinch = null;
        canvas.classList.remove('held');
    };
    const cancel = () => {
        if (held && held.range !== null && held.moved) target.range?.cancel();
        held = null;
    };

    canvas.addEventListener('pointerdown', (event) => {
        if (event.button !== 0) return;
        const { from, to } = store.state;
        const [x] = place(event);
        canvas.setPointerCapture(event.pointerId);
        if (event.pointerType === 'touch') fingers.set(event.pointerId, x);
        if (fingers.size === 2) {
            cancel();
            const [middle, gap] = both();
            pinch = { at: fromX(target.plot(), middle), gap, span: to - from };
        } else held = { x: event.clientX, from, to, moved: false, range: target.range && !event.shiftKey ? x : null };
    });
    canvas.addEventListener('pointermove', (event) => {
        if (fingers.has(event.pointerId)) fingers.set(event.pointerId, place(event)[0]);
        if (pinch) {
            const [middle, gap] = both();
            const { box } = target.plot();
            const extent = target.extent();
            const span = Math.min(Math.max((pinch.span * pinch.gap) / gap, LEAST), extent[1] - extent[0]);
            const from = pinch.at - ((middle - box.x) / box.width) * span;
            store.set(clamped(from, from + span, extent));
            return;
        }
        if (!held) {
            target.hover(...place(event));
            return;
        }
        const moved = event.clientX - held.x;
        if (!held.moved && Math.abs(moved) < 4) return;
        held.moved = true;
        if (held.range !== null) {
            target.range?.drag(held.range, place(event)[0], false);
            return;
        }
        canvas.classList.add('held');
        const offset = (moved / target.plot().box.width) * (held.to - held.from);
        store.set(clamped(held.from - offset, held.to - offset, target.extent()));
    });
    canvas.addEventListener('pointerup', (event) => {
        if (held && !held.moved) target.click(...place(event), event);
        else if (held && held.range !== null) target.range?.drag(held.range, place(event)[0], true);
        release(event);
    });
    canvas.addEventListener('pointercancel', (event) => {
        cancel();
        release(event);
    });
    canvas.addEventListener('pointerleave', () => target.leave());
    canvas.addEventListener('dblclick', (event) => {
        const [x] = place(event);
        zoom(store, target.extent(), fromX(target.plot(), x), event.shiftKey ? 0.25 : 4);
    });
}
