/** What the reader looks at. All views draw from it; it is what a link holds. */

import type { Axis, By, Metric, RangePart } from '../engine/engine.d.ts';

export type Tab = 'table' | 'blocks' | 'segments' | 'flame' | 'events' | 'tracks' | 'whatif' | 'findings';
export const TABS: readonly Tab[] = ['table', 'blocks', 'segments', 'flame', 'events', 'tracks', 'whatif', 'findings'];

/**
 * What a flame graph is of: what is live at the cursor, a part of the range between the mark and the cursor, or the difference
 * of its ends, or of two recordings.
 */
export type FlameOf = 'live' | 'difference' | RangePart;
/** Those of a range. */
export const FLAMES: readonly FlameOf[] = ['allocated', 'survived', 'freed', 'difference', 'live'];

/** What can be listed alone of the entries. */
export const LISTED: readonly string[] = ['all', 'allocations', 'frees', 'segments', 'failed'];

/** What the bands can be of. Reserved memory is held by segments, by the stacks that asked for them. */
export const METRICS: readonly Metric[] = ['allocated', 'active', 'requested', 'reserved'];

/** What the details show: an allocation or an entry of either file, or a group of the table, or of the bands where those differ. */
export type Selection =
    | { allocation: number; second: boolean }
    | { entry: number; second: boolean }
    | { label: string; isBand: boolean }
    | null;

/** Whether a row of the table is chosen. */
export function isRow({ selected, by }: State, label: string): boolean {
    if (!selected || !('label' in selected) || selected.label !== label) return false;
    return !selected.isBand || stackedBy(by) === by;
}

/** The group of what is stacked that is chosen. */
export function chosenBand({ selected, by }: State): string | null {
    if (!selected || !('label' in selected)) return null;
    return selected.isBand || stackedBy(by) === by ? selected.label : null;
}

export interface State {
    device: number;
    axis: Axis;
    /** The range of x that is seen. */
    from: number;
    to: number;
    metric: Metric;
    by: By;
    /** The instant that all views speak of. */
    at: number;
    /** Where the range begins or ends whose other end is the cursor, or `null`: no range. */
    mark: number | null;
    /** The instant of the second file, where there is one. */
    at2: number;
    tab: Tab;
    /** What was chosen of those that there are; `null` for the first. */
    flame: FlameOf | null;
    /** The function whose callers and callees the flame graph shows; empty for all functions. */
    around: string;
    /** Cures that are tried, by their places in the list of the device, as in `0,2`. */
    cures: string;
    /** The string of other allocator settings that are tried; `null` for the recorded ones. */
    conf: string | null;
    /** Bytes of the device that is tried; 0 for the recorded one. */
    capacity: number;
    /** What two recordings differ in and its value in each, as in `batch=4,8`; what their names say where it is empty. */
    vary: string;
    /** The value of it that is tried; 0 for none. */
    value: number;
    /** The kind of entries that are listed, and their least bytes. */
    listed: string;
    least: number;
    /** Whether segments follow each other instead of having rows of their own. */
    packed: boolean;
    /** Tracks that stay in sight, and those that are folded, as in `0.0.allocated,1`. */
    pinned: string;
    folded: string;
    selected: Selection;
    query: string;
    /** How often the search has answered: not part of a link. */
    found: number;
    /** Whether y ends at the highest point that is seen instead of that of the whole run. */
    fit: boolean;
}

/** The places of the cures that are tried. */
export function tried({ cures }: Pick<State, 'cures'>): number[] {
    return cures === '' ? [] : cures.split(',').map(Number);
}

type Tried = Pick<State, 'cures' | 'conf' | 'capacity'>;

/** Whether anything is tried. */
export function isTried({ cures, conf, capacity }: Tried): boolean {
    return cures !== '' || conf !== null || capacity > 0;
}

/** What is tried, as the engine takes it. */
export function attempt(state: Tried): [cures: Uint32Array, conf: string | undefined, capacity: number] {
    return [Uint32Array.from(tried(state)), state.conf ?? undefined, state.capacity];
}

/** What says what is tried, of one recording or of two. */
export const TRIED = ['cures', 'conf', 'capacity', 'vary', 'value'] as const satisfies readonly (keyof State)[];

/** Nothing is tried. */
export const AS_RECORDED = { cures: '', conf: null, capacity: 0 } as const;

/** The parts of a list. */
export function parts(list: string): string[] {
    return list === '' ? [] : list.split(',');
}

/** A list with a part, or without it if it had it. */
export function toggled(list: string, part: string): string {
    const all = parts(list);
    return (all.includes(part) ? all.filter((each) => each !== part) : [...all, part]).join();
}

type Changed = ReadonlySet<keyof State>;
type Listener = (state: State, changed: Changed) => void;

/** Whether any of these is among what has changed. */
export function touches(changed: Changed, ...keys: (keyof State)[]): boolean {
    return keys.some((key) => changed.has(key));
}

/** Groups that what is stacked can be of: those of functions overlap. */
export function stackedBy(by: By): By {
    return by === 'function' ? 'site' : by;
}

/** The state and who wants to know: until another page takes its place, all changes of a task at once before the next frame. */
export class Store {
    #state: State;
    #changed = new Set<keyof State>();
    #listeners: Listener[] = [];

    constructor(
        state: State,
        /** Aborted when another page takes this one's place. */
        readonly gone: AbortSignal,
    ) {
        this.#state = state;
    }

    get state(): Readonly<State> {
        return this.#state;
    }

    set(patch: Partial<State>): void {
        const before = this.#changed.size;
        for (const key of Object.keys(patch) as (keyof State)[]) {
            if (this.#state[key] !== patch[key]) this.#changed.add(key);
        }
        this.#state = { ...this.#state, ...patch };
        if (before === 0 && this.#changed.size > 0) requestAnimationFrame(() => this.#tell());
    }

    subscribe(listener: Listener): void {
        this.#listeners.push(listener);
    }

    #tell(): void {
        const changed = this.#changed;
        this.#changed = new Set();
        if (this.gone.aborted) return;
        for (const listener of this.#listeners) listener(this.#state, changed);
    }
}
