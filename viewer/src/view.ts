/** What a panel of the lower half can do. */

import type { Pen } from './pen.ts';
import type { Tab } from './state.ts';
import type { Surface } from './surface.ts';

/** Something that is drawn, and can be kept as a picture. */
export interface Drawn {
    readonly surface: Surface;
    /** Draws what is seen. */
    paint(pen: Pen): void;
}

export interface View {
    readonly tab: Tab;
    readonly title: string;
    readonly panel: HTMLElement;
    /** Its pictures; none of views that are text. */
    readonly drawn: readonly Drawn[];
    /** It came into sight: fetch and draw what it shows, unless that is there. */
    show(): void;
}
