/** The state of the page. All views draw it, and a link contains it. */

import type { Axis, By, Metric, RangePart } from '../engine/engine.d.ts';

export type Tab = 'table' | 'blocks' | 'segments' | 'flame' | 'events' | 'tracks' | 'steps' | 'whatif' | 'findings';
export const TABS: readonly Tab[] = ['table', 'blocks', 'segments', 'flame', 'events', 'tracks', 'steps', 'whatif', 'findings'];

/**
 * The content of a flame graph: memory live at the cursor, a part of the range between the mark and the cursor, or the
 * difference of its ends, or of two recordings.
 */
export type FlameOf = 'live' | 'difference' | RangePart;
/** The choices for a range. */
export const FLAMES: readonly FlameOf[] = ['allocated', 'survived', 'freed', 'difference', 'live'];

/** What the list of entries can be limited to. */
export const LISTED: readonly string[] = ['all', 'allocations', 'frees', 'segments', 'failed'];

/** The metrics of the bands. Reserved memory is held by segments, grouped by the stacks that requested them. */
export const METRICS: readonly Metric[] = ['allocated', 'active', 'requested', 'reserved'];

/** The content of the details: an allocation or an entry of either file, or a group of the table, or of the bands if these differ. */
export type Selection =
    | { allocation: number; second: boolean }
    | { entry: number; second: boolean }
    | { label: string; isBand: boolean }
    | null;

/** Whether a row of the table is selected. */
export function isRow({ selected, by }: State, label: string): boolean {
    if (!selected || !('label' in selected) || selected.label !== label) return false;
    return !selected.isBand || stackedBy(by) === by;
}

/** The selected group of the bands. */
export function chosenBand({ selected, by }: State): string | null {
    if (!selected || !('label' in selected)) return null;
    return selected.isBand || stackedBy(by) === by ? selected.label : null;
}

export interface State {
    device: number;
    axis: Axis;
    /** The visible range of x. */
    from: number;
    to: number;
    metric: Metric;
    by: By;
    /** The instant that all views show. */
    at: number;
    /** The other end of the range that ends at the cursor, or `null` without a range. */
    mark: number | null;
    /** The instant of the second file, if there is one. */
    at2: number;
    tab: Tab;
    /** The chosen flame graph; `null` for the first one. */
    flame: FlameOf | null;
    /** The function whose callers and callees the flame graph shows; empty for all functions. */
    around: string;
    /** The tried cures, by their places in the list of the device, as in `0,2`. */
    cures: string;
    /** The string of the tried allocator settings; `null` for the recorded ones. */
    conf: string | null;
    /** Bytes of the tried device; 0 for the recorded one. */
    capacity: number;
    /** Tried changes besides the cures, by the names of the engine, as in `optimizer:sgd;offload:optimizer`. */
    changes: string;
    /** What two recordings differ in and its value in each, as in `batch=4,8`; empty to use their names. */
    vary: string;
    /** The tried value of it; 0 for none. */
    value: number;
    /** The kind of listed entries, and their least bytes. */
    listed: string;
    least: number;
    /** Whether segments follow each other instead of having their own rows. */
    packed: boolean;
    /** Tracks that stay visible, and folded tracks, as in `0.0.allocated,1`. */
    pinned: string;
    folded: string;
    selected: Selection;
    query: string;
    /** The number of answered searches: not part of a link. */
    found: number;
    /** Whether y ends at the highest visible point instead of that of the whole run. */
    fit: boolean;
}

/** The places of the tried cures. */
export function tried({ cures }: Pick<State, 'cures'>): number[] {
    return cures === '' ? [] : cures.split(',').map(Number);
}

type Tried = Pick<State, 'cures' | 'conf' | 'capacity' | 'changes'>;

/** Whether anything is tried. */
export function isTried({ cures, conf, capacity, changes }: Tried): boolean {
    return cures !== '' || conf !== null || capacity > 0 || changes !== '';
}

/** The tried changes besides the cures. */
export function changesOf({ changes }: Pick<State, 'changes'>): string[] {
    return changes === '' ? [] : changes.split(';');
}

/** What is tried, as the engine takes it. */
export function attempt(state: Tried): [cures: Uint32Array, conf: string | undefined, capacity: number, changes: string[]] {
    return [Uint32Array.from(tried(state)), state.conf ?? undefined, state.capacity, changesOf(state)];
}

/** The keys of what is tried, for one recording or two. */
export const TRIED = ['cures', 'conf', 'capacity', 'changes', 'vary', 'value'] as const satisfies readonly (keyof State)[];

/** Nothing is tried. */
export const AS_RECORDED = { cures: '', conf: null, capacity: 0, changes: '' } as const;

/** The parts of a list. */
export function parts(list: string): string[] {
    return list === '' ? [] : list.split(',');
}

/** A list with a part added, or removed if it was there. */
export function toggled(list: string, part: string): string {
    const all = parts(list);
    return (all.includes(part) ? all.filter((each) => each !== part) : [...all, part]).join();
}

type Changed = ReadonlySet<keyof State>;
type Listener = (state: State, changed: Changed) => void;

/** Whether any of these keys has changed. */
export function touches(changed: Changed, ...keys: (keyof State)[]): boolean {
    return keys.some((key) => changed.has(key));
}

/** The grouping of stacked bands: groups of functions overlap. */
export function stackedBy(by: By): By {
    return by === 'function' ? 'site' : by;
}

/** The state and its observers: they get all changes of a task together before the next frame, until another page replaces this one. */
export class Store {
    #state: State;
    #changed = new Set<keyof State>();
    #listeners: Listener[] = [];

    constructor(
        state: State,
        /** Aborted when another page replaces this one. */
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
