/** A canvas with a plot of the run: zoom, pan and pointer work the same way in every plot. */

import { choosable } from './chosen.ts';
import { extent, type Lane } from './lane.ts';
import { navigate, type Ranged } from './navigate.ts';
import type { Plot } from './plot.ts';
import { Surface } from './surface.ts';

/** The reactions of a plot. */
export interface Charted {
    plot: () => Plot;
    draw: () => void;
    /** Requests the visible part, unless it is already there. */
    fetch: () => void;
    /** The pointer is at a position, or outside. */
    point: (x: number, y: number) => void;
    click: (x: number, y: number, event: PointerEvent) => void;
    range: Ranged;
    /** Selects what is below or above the selection. */
    next?: (step: 1 | -1) => void;
}

/** Creates the canvas of a lane's plot; `label` describes it for screen readers. */
export function chart(
    host: HTMLElement,
    lanes: readonly Lane[],
    lane: Lane,
    label: string,
    { plot, draw, fetch, point, click, range, next = () => {} }: Charted,
): Surface {
    const surface = new Surface(host, lane.store.gone, draw, fetch);
    const { canvas } = surface;
    choosable(canvas, lane, next);
    canvas.setAttribute('aria-label', label);
    navigate({
        canvas,
        store: lane.store,
        plot,
        extent: () => extent(lanes),
        hover: point,
        leave: () => point(-1, -1),
        click,
        // A range is part of one recording.
        ...(lanes.length === 1 ? { range } : {}),
    });
    return surface;
}
