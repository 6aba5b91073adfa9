/** Elements. Every text is set as text, never as markup. */

import type { Color } from './colors.ts';

type Child = Node | string | null;

/** Makes an element with attributes and children. */
export function element<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    attributes: Record<string, string> = {},
    ...children: Child[]
): HTMLElementTagNameMap[K] {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null));
    return made;
}

/** The element of the page with an id; it is a mistake of the page if there is none. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
    const found = document.getElementById(id);
    if (!found) throw new Error(`the page has no element ${id}`);
    return found as T;
}

/** A button that says what it does. */
export function button(text: string, title: string, act: () => void): HTMLButtonElement {
    const made = element('button', { type: 'button', title }, text);
    made.addEventListener('click', act);
    return made;
}

/** A square of a color beside a label. */
export function swatch(color: Color): HTMLElement {
    const made = element('span', { class: 'swatch', 'aria-hidden': 'true' });
    made.style.background = `light-dark(${color.light}, ${color.dark})`;
    return made;
}
