/** A canvas with a plot of the run: zoomed, panned and pointed at in the same way wherever there is one. */

import { extent, type Lane } from './lane.ts';
import { navigate } from './navigate.ts';
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
}

/** Makes the canvas of a lane's plot; `label` says what it shows to who does not see it. */
export function chart(
    host: HTMLElement,
    lanes: readonly Lane[],
    lane: Lane,
    label: string,
    { plot, draw, fetch, point, click }: Charted,
): Surface {
    const surface = new Surface(host, lane.store.gone, draw, fetch);
    const { canvas } = surface;
    canvas.tabIndex = 0;
    canvas.dataset.lane = lane.letter;
    canvas.setAttribute('role', 'application');
    canvas.setAttribute('aria-label', label);
    navigate({
        canvas,
        store: lane.store,
        plot,
        extent: () => extent(lanes),
        hover: point,
        leave: () => point(-1, -1),
        click,
    });
    return surface;
}
