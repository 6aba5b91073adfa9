/** Elements. Every text is set as text, never as markup. */

import type { Color } from './colors.ts';

type Child = Node | string | null;

/** Creates an element with attributes and children. */
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

/** Text that may break between the words of a path, a command or an identifier, rather than within a word. */
export function breakable(text: string): (string | HTMLElement)[] {
    const parts = text.split(/(?<=[A-Za-z0-9][/\\_=-])(?=[A-Za-z0-9])/);
    return parts.flatMap((part, at) => (at === 0 ? [part] : [document.createElement('wbr'), part]));
}

/** The element of the page with an id. If there is none, that is an error in the page. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
    const found = document.getElementById(id);
    if (!found) throw new Error(`the page has no element ${id}`);
    return found as T;
}

/** A button with a text for what it does. */
export function button(text: string, title: string, act: () => void): HTMLButtonElement {
    const made = element('button', { type: 'button', title }, text);
    made.addEventListener('click', act);
    return made;
}

/** A square in a color, next to a label. */
export function swatch(color: Color): HTMLElement {
    const made = element('span', { class: 'swatch', 'aria-hidden': 'true' });
    made.style.background = `light-dark(${color.light}, ${color.dark})`;
    return made;
}
