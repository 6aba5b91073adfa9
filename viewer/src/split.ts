/** The line between the timeline and what is below it: it can be moved. */

import { byId } from './dom.ts';

export function listenToSplit(): void {
    const line = byId('split');
    const upper = byId('timelines');
    const set = (height: number) => {
        const room = byId('left').clientHeight;
        upper.style.height = `${Math.max(90, Math.min(height, room - 160))}px`;
    };
    line.addEventListener('pointerdown', (event) => line.setPointerCapture(event.pointerId));
    line.addEventListener('pointermove', (event) => {
        if (line.hasPointerCapture(event.pointerId)) set(event.clientY - upper.getBoundingClientRect().top);
    });
    line.addEventListener('keydown', (event) => {
        const step = event.key === 'ArrowUp' ? -20 : event.key === 'ArrowDown' ? 20 : 0;
        if (step !== 0) set(upper.clientHeight + step);
    });
}
