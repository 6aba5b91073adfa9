/** The contents of flame graphs, in words. */

import type { FlameOf } from './state.ts';

/** Texts for the button, for the bytes in it, and for an empty graph. */
interface Words {
    button: string;
    title: string;
    words: string;
    none: string;
}

export const OF: Record<FlameOf, Words> = {
    allocated: {
        button: 'allocated in it',
        title: 'Everything that was allocated in the range',
        words: 'allocated in the range',
        none: 'Nothing is allocated in this range.',
    },
    survived: {
        button: 'survived',
        title: 'What was allocated in the range and is live at its end',
        words: 'allocated in the range, live at its end',
        none: 'Nothing that is allocated in this range is live at its end.',
    },
    freed: {
        button: 'freed in it',
        title: 'Everything that was freed in the range, by the stacks that allocated it',
        words: 'freed in the range',
        none: 'Nothing is freed in this range.',
    },
    difference: {
        button: 'difference',
        title: 'What grew and what shrank',
        words: 'in the larger of the two',
        none: 'Nothing is allocated in either.',
    },
    live: { button: 'at the cursor', title: 'What is live at the cursor', words: 'live', none: 'Nothing is allocated here.' },
};
