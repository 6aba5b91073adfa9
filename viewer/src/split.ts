/** The divider between the timeline and the part below it. */

import { byId } from './dom.ts';

/** Least height of the timeline, in pixels. */
const LEAST = 90;

export function listenToSplit(): void {
    const line = byId('split');
    const upper = byId('timelines');
    const most = () => Math.max(LEAST, byId('left').clientHeight - 160);
    const set = (height: number) => {
        upper.style.height = `${Math.max(LEAST, Math.min(height, most()))}px`;
    };
    line.setAttribute('aria-valuemin', String(LEAST));
    const say = () => {
        line.setAttribute('aria-valuemax', String(most()));
        line.setAttribute('aria-valuenow', String(upper.clientHeight));
    };
    new ResizeObserver(say).observe(upper);
    line.addEventListener('pointerdown', (event) => line.setPointerCapture(event.pointerId));
    line.addEventListener('pointermove', (event) => {
        if (line.hasPointerCapture(event.pointerId)) set(event.clientY - upper.getBoundingClientRect().top);
    });
    line.addEventListener('keydown', (event) => {
        const step = event.key === 'ArrowUp' ? -20 : event.key === 'ArrowDown' ? 20 : 0;
        if (step !== 0) set(upper.clientHeight + step);
    });
}
