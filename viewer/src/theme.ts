/** The theme that the reader prefers. */

import type { Theme } from './colors.ts';

const dark = matchMedia('(prefers-color-scheme: dark)');
let printing = false;

addEventListener('beforeprint', () => {
    printing = true;
});
addEventListener('afterprint', () => {
    printing = false;
});

/** The reader's preference; paper is light. */
export function theme(): Theme {
    return dark.matches && !printing ? 'dark' : 'light';
}

/** Calls `changed` after every change of the theme, until `signal` is aborted. */
export function onTheme(changed: () => void, signal: AbortSignal): void {
    dark.addEventListener('change', changed, { signal });
    addEventListener('beforeprint', changed, { signal });
    addEventListener('afterprint', changed, { signal });
}
