/** The interface of a panel in the lower half. */

import type { Pen } from './pen.ts';
import type { Tab } from './state.ts';
import type { Surface } from './surface.ts';

/** A drawing, which can be saved as a picture. */
export interface Drawn {
    readonly surface: Surface;
    /** Draws the visible part. */
    paint(pen: Pen): void;
}

export interface View {
    readonly tab: Tab;
    readonly title: string;
    readonly panel: HTMLElement;
    /** Its pictures; none for views that are text. */
    readonly drawn: readonly Drawn[];
    /** It became visible: fetch and draw its content, unless it is there. */
    show(): void;
}
