/** The theme that the reader prefers. */

import type { Theme } from './colours.ts';

const dark = matchMedia('(prefers-color-scheme: dark)');
let printing = false;

/** What the reader prefers; paper is light. */
export function theme(): Theme {
    return dark.matches && !printing ? 'dark' : 'light';
}

/** Tells of every change of the theme. */
export function onTheme(changed: () => void): void {
    dark.addEventListener('change', changed);
    const print = (now: boolean) => () => {
        printing = now;
        changed();
    };
    addEventListener('beforeprint', print(true));
    addEventListener('afterprint', print(false));
}
