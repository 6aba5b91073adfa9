/** The categories of bands, in their colors. */

import type { Group } from '../engine/engine.d.ts';
import { element, swatch } from './dom.ts';

/** Lists the categories from the bottom of the stack up, each in the color of its first group. */
export function showLegend(host: HTMLElement, groups: readonly Group[]): void {
    const first = new Map<string, Group>();
    for (const group of groups) if (group.purpose !== null && !first.has(group.purpose)) first.set(group.purpose, group);
    host.replaceChildren(...[...first].map(([purpose, group]) => element('span', {}, swatch(group), purpose)));
}
