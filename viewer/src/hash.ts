/** The state in the URL's hash, so that a link shows the same. Parts that equal the initial state are omitted. */

import type { Metric } from '../engine/engine.d.ts';
import { FLAMES, type FlameOf, LISTED, METRICS, TABS, type State, type Tab } from './state.ts';

/** Writes what differs from `initial`, which an empty hash represents, unless `shown` is given. */
export function write(state: State, initial: State, shown = ''): string {
    const parts = new URLSearchParams();
    const put = (key: string, value: string | number, standard: string | number) => {
        if (value !== standard) parts.set(key, String(value));
    };
    put('device', state.device, initial.device);
    put('x', state.axis, initial.axis);
    if (state.from !== initial.from || state.to !== initial.to) {
        const [from, to] = rounded(state.from, state.to);
        parts.set('from', from);
        parts.set('to', to);
    }
    put('metric', state.metric, initial.metric);
    put('by', state.by, initial.by);
    // If the instant is omitted, it is the peak of that device.
    const isThere = state.device === initial.device;
    put('at', state.at, isThere ? initial.at : '');
    put('at2', state.at2, isThere ? initial.at2 : '');
    if (state.mark !== null) parts.set('mark', String(state.mark));
    put('tab', state.tab, initial.tab);
    if (state.around.length < 2000) put('around', state.around, initial.around);
    put('cures', state.cures, initial.cures);
    if (state.conf !== null && state.conf.length < 2000) parts.set('conf', state.conf);
    put('capacity', state.capacity, initial.capacity);
    put('changes', state.changes, initial.changes);
    put('vary', state.vary, initial.vary);
    put('value', state.value, initial.value);
    put('listed', state.listed, initial.listed);
    put('least', state.least, initial.least);
    put('pinned', state.pinned, initial.pinned);
    put('folded', state.folded, initial.folded);
    put('flame', state.flame ?? '', initial.flame ?? '');
    if (state.selected && 'allocation' in state.selected)
        parts.set(state.selected.second ? 'allocation2' : 'allocation', String(state.selected.allocation));
    if (state.selected && 'entry' in state.selected)
        parts.set(state.selected.second ? 'entry2' : 'entry', String(state.selected.entry));
    // A label may be a whole stack: one that does not fit into a URL is omitted.
    if (state.selected && 'label' in state.selected && state.selected.label.length < 2000)
        parts.set(state.selected.isBand ? 'band' : 'label', state.selected.label);
    put('search', state.query, initial.query);
    if (state.fit) parts.set('fit', '1');
    if (state.packed) parts.set('packed', '1');
    return parts.size === 0 && shown !== '' ? 'all' : parts.toString();
}

/** The ends of a range, as exact as a screen shows them: a thousandth of it, or integers if it is long. */
function rounded(from: number, to: number): [string, string] {
    const digits = Math.min(6, Math.max(0, Math.ceil(3 - Math.log10(to - from))));
    const [start, end] = [from.toFixed(digits), to.toFixed(digits)].map((text) => String(Number(text)));
    return [start, end];
}

/** Reads a hash; missing or invalid parts are omitted. The caller, which knows the file, checks ranges. */
export function read(hash: string): Partial<State> {
    const parts = new URLSearchParams(hash.replace(/^#/, ''));
    const state: Partial<State> = {};
    const number = (key: string): number | undefined => {
        const text = parts.get(key);
        const value = text === null || text.trim() === '' ? Number.NaN : Number(text);
        return Number.isFinite(value) ? value : undefined;
    };
    const count = (key: string): number | undefined => {
        const value = number(key);
        return value !== undefined && Number.isInteger(value) && value >= 0 ? value : undefined;
    };
    // The engine numbers allocations in 32 bits.
    const id = (key: string): number | undefined => {
        const value = count(key);
        return value !== undefined && value < 2 ** 32 ? value : undefined;
    };
    const device = number('device');
    if (device !== undefined && Number.isInteger(device)) state.device = device;
    const axis = parts.get('x');
    if (axis === 'entry' || axis === 'time' || axis === 'folded' || axis === 'step') state.axis = axis;
    const [from, to] = [number('from'), number('to')];
    if (from !== undefined && to !== undefined && from < to) [state.from, state.to] = [from, to];
    const metric = parts.get('metric');
    if (metric && METRICS.includes(metric as Metric)) state.metric = metric as Metric;
    const by = parts.get('by');
    if (by) state.by = by;
    const [at, at2, mark] = [count('at'), count('at2'), count('mark')];
    const [allocation, allocation2] = [id('allocation'), id('allocation2')];
    const [entry, entry2] = [id('entry'), id('entry2')];
    if (at !== undefined) state.at = at;
    if (at2 !== undefined) state.at2 = at2;
    if (mark !== undefined) state.mark = mark;
    const tab = parts.get('tab') as Tab | null;
    if (tab && TABS.includes(tab)) state.tab = tab;
    const around = parts.get('around');
    if (around) state.around = around;
    const cures = parts.get('cures');
    if (cures && /^\d{1,4}(,\d{1,4})*$/.test(cures)) state.cures = cures;
    const conf = parts.get('conf');
    if (conf !== null) state.conf = conf;
    const [capacity, value, least] = [count('capacity'), count('value'), count('least')];
    if (capacity !== undefined) state.capacity = capacity;
    if (value !== undefined) state.value = value;
    if (least !== undefined) state.least = least;
    const changes = parts.get('changes');
    if (changes && changes.length < 4000) state.changes = changes;
    const vary = parts.get('vary');
    if (vary) state.vary = vary;
    const listed = parts.get('listed');
    if (listed && LISTED.includes(listed)) state.listed = listed;
    for (const key of ['pinned', 'folded'] as const) {
        const tracks = parts.get(key);
        if (tracks && /^[\w.,-]{1,4000}$/.test(tracks)) state[key] = tracks;
    }
    const flame = parts.get('flame') as FlameOf | null;
    if (flame && FLAMES.includes(flame)) state.flame = flame;
    const [label, band] = [parts.get('label'), parts.get('band')];
    if (allocation !== undefined) state.selected = { allocation, second: false };
    else if (allocation2 !== undefined) state.selected = { allocation: allocation2, second: true };
    else if (entry !== undefined) state.selected = { entry, second: false };
    else if (entry2 !== undefined) state.selected = { entry: entry2, second: true };
    else if (label) state.selected = { label, isBand: false };
    else if (band) state.selected = { label: band, isBand: true };
    const query = parts.get('search');
    if (query) state.query = query;
    if (parts.get('fit') === '1') state.fit = true;
    if (parts.get('packed') === '1') state.packed = true;
    return state;
}
