/** Selecting by keys what the pointer can select in a picture. */

import type { Lane } from './lane.ts';

/** Makes a picture of a lane focusable: arrows go down and up to the `next` shape, and Enter acts like a click on it. */
export function choosable(
    canvas: HTMLCanvasElement,
    lane: Lane,
    next: (step: 1 | -1) => void,
    click: () => void = () => {},
): void {
    canvas.tabIndex = 0;
    canvas.dataset.lane = lane.letter;
    canvas.setAttribute('role', 'application');
    const actions: Record<string, () => void> = {
        ArrowDown: () => next(1),
        ArrowUp: () => next(-1),
        Enter: click,
    };
    canvas.addEventListener('keydown', (event) => {
        const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
        if (!act) return;
        event.preventDefault();
        act();
    });
}
