/** The categories or phases of bands, in their colors. */

import type { By, Group } from '../engine/engine.d.ts';
import { element, swatch } from './dom.ts';
import { name } from './format.ts';

/** Lists the categories, or the groups if these are phases, from the bottom of the stack up, each in the color of its first group. */
export function showLegend(host: HTMLElement, groups: readonly Group[], by: By): void {
    const first = new Map<string, Group>();
    for (const group of groups) {
        const said = by === 'phase' ? name(group.label) : group.purpose;
        if (said !== null && !first.has(said)) first.set(said, group);
    }
    host.replaceChildren(...[...first].map(([said, group]) => element('span', {}, swatch(group), said)));
}
