/** A canvas with a plot of the run: zoomed, panned and pointed at in the same way wherever there is one. */

import { choosable } from './chosen.ts';
import { extent, type Lane } from './lane.ts';
import { navigate, type Ranged } from './navigate.ts';
import type { Plot } from './plot.ts';
import { Surface } from './surface.ts';

/** What a plot does about it. */
export interface Charted {
    plot: () => Plot;
    draw: () => void;
    /** Asks for what is seen, unless it is there. */
    fetch: () => void;
    /** The pointer is at a place, or at none. */
    point: (x: number, y: number) => void;
    click: (x: number, y: number, event: PointerEvent) => void;
    range?: Ranged;
    /** Chooses what is below or above what is chosen. */
    next?: (step: 1 | -1) => void;
}

/** Makes the canvas of a lane's plot; `label` says what it shows to who does not see it. */
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
        ...(range ? { range } : {}),
    });
    return surface;
}
