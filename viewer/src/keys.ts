/** Keys for the whole page. */

import { lookAt } from './aligned.ts';
import { byId } from './dom.ts';
import { extent, isStill, type Lane } from './lane.ts';
import { clamped, pan, zoom } from './navigate.ts';
import type { State, Store } from './state.ts';

/** The action of each key, as the help shows it. */
export const KEYS: readonly (readonly [keys: string, what: string])[] = [
    ['wheel, + −, w s', 'zoom at the pointer, or at the cursor'],
    ['shift drag, shift wheel, a d', 'move along the run; with two fingers, also zoom'],
    ['0', 'show the whole run'],
    ['click', 'select a band and its instant; on an annotation, zoom to it'],
    ['← →', 'move the cursor by a pixel; with shift by one entry'],
    ['p', 'go to the peak'],
    ['drag', 'choose a range: what was allocated, freed and survived in it; a click ends it'],
    ['m, shift click', 'begin a range at an instant; m again ends it'],
    ['y', 'scale the visible part to the full height'],
    ['↑ ↓, Enter', 'in the blocks, segments, flame graph and events views: select the next item, zoom in'],
    ['[ ]', 'previous and next step'],
    ['1 to 9', 'the views below the timeline'],
    ['/', 'search'],
    ['Escape', 'close what is open'],
    ['?', 'this help'],
];

interface Target {
    readonly store: Store;
    readonly lanes: readonly Lane[];
    readonly views: readonly { tab: State['tab'] }[];
}

/** Actions of keys that belong to other parts of the page. */
interface Go {
    whole: () => void;
    peak: () => void;
    fail: (error: unknown) => void;
}

/** Listens for a page, until another one replaces it. */
export function listen(page: Target, go: Go): void {
    addEventListener('keydown', (event) => press(page, go, event), { signal: page.store.gone });
}

function press(page: Target, go: Go, event: KeyboardEvent): void {
    const { store, lanes } = page;
    const target = event.target as HTMLElement;
    if (event.key === 'Escape') {
        if (target.closest('dialog')) return;
        store.set({ selected: null });
        if (target.matches('input')) target.blur();
        return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, select, textarea, dialog')) return;
    // The plot's own recording, or the first one outside of plots.
    const lane = lanes.find((each) => target.dataset.lane === each.letter) ?? lanes[0];
    const { from, to, fit, mark } = store.state;
    const whole = extent(lanes);
    const seen = (x: number) => x >= from && x < to;
    const center = seen(lane.x(lane.at)) ? lane.x(lane.at) : (from + to) / 2;
    const actions: Record<string, () => void> = {
        '+': () => zoom(store, whole, center, 1.5),
        '=': () => zoom(store, whole, center, 1.5),
        '-': () => zoom(store, whole, center, 1 / 1.5),
        w: () => zoom(store, whole, center, 1.5),
        s: () => zoom(store, whole, center, 1 / 1.5),
        a: () => pan(store, whole, -0.2),
        d: () => pan(store, whole, 0.2),
        '0': go.whole,
        p: go.peak,
        m: () => store.set({ mark: mark === null && lanes.length === 1 && !isStill(lanes) ? lane.at : null }),
        y: () => store.set({ fit: !fit }),
        '/': () => byId('search').focus(),
        '?': () => byId<HTMLDialogElement>('help').showModal(),
        '[': () => step(lanes, lane, whole, -1, go.fail),
        ']': () => step(lanes, lane, whole, 1, go.fail),
        ArrowLeft: () => move(lanes, lane, event.shiftKey, -1),
        ArrowRight: () => move(lanes, lane, event.shiftKey, 1),
    };
    page.views.forEach((view, at) => {
        actions[String(at + 1)] = () => store.set({ tab: view.tab });
    });
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
}

/** Moves the cursor by an entry, or by a pixel if that is more. */
function move(lanes: readonly Lane[], lane: Lane, fine: boolean, sign: number): void {
    const { from, to, axis } = lane.store.state;
    const { device, entries } = lane.device;
    let next = lane.at + sign;
    if (!fine) {
        const there = lane.recording.instant(device, lane.x(lane.at) + (sign * (to - from)) / 1000, axis);
        next = sign > 0 ? Math.max(next, there) : Math.min(next, there);
    }
    lookAt(lanes, lane, Math.max(0, Math.min(entries, next)));
}

/** Shows the step before or after the cursor. */
function step(lanes: readonly Lane[], lane: Lane, whole: readonly [number, number], sign: number, fail: Go['fail']): void {
    const { device } = lane.device;
    const steps = lane.recording.steps(device);
    if (steps.length === 0) fail(lane.recording.whyNoSteps(device));
    const { at } = lane;
    const next = sign > 0 ? steps.find((each) => each.from >= at) : steps.findLast((each) => each.to <= at);
    if (!next) return;
    const [left, right] = [lane.x(next.from), lane.x(next.to)];
    lane.store.set({ ...clamped(left - 0.05 * (right - left), right + 0.05 * (right - left), whole) });
    // The instant of its first entry: the instant before that belongs to the previous step.
    lookAt(lanes, lane, next.from + 1);
}
