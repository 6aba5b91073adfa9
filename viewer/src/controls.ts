/** What is shown, and how: device, metric, groups, axis, range, search. */

import type { Axis } from '../engine/engine.d.ts';
import { whyNotAligned } from './aligned.ts';
import { Latest } from './client.ts';
import { button, byId, element } from './dom.ts';
import { timeAxis } from './folds.ts';
import { bytes, name, whole } from './format.ts';
import { changeDevice, devicesOf, extent, type Lane } from './lane.ts';
import { clamped } from './navigate.ts';
import { common } from './recording.ts';
import { METRICS, type State, stackedBy, touches } from './state.ts';

/** Groupings that segments do not have: each segment contains blocks of many. */
const OF_BLOCKS_ONLY = 'category';

/** The choices of the x axis. */
const AXES: Record<Exclude<Axis, 'folded'>, string> = {
    entry: 'entries',
    time: 'time',
    step: 'aligned by step: each step begins at the same place in all recordings, and is as long as any other',
};

function select(
    label: string,
    options: readonly (readonly [value: string, text: string])[],
    chosen: (value: string) => void,
): HTMLSelectElement {
    const made = element('select', { 'aria-label': label });
    for (const [value, text] of options) made.append(element('option', { value }, text));
    made.addEventListener('change', () => chosen(made.value));
    return made;
}

/** Changes the axis and keeps the visible range. */
export function changeAxis(lanes: readonly Lane[], axis: Axis): void {
    const [lane] = lanes;
    const { store, recording } = lane;
    const { from, to, axis: before } = store.state;
    if (axis === before) return;
    const { device } = lane.device;
    const [start, end] = [recording.instant(device, from, before), recording.instant(device, to, before)];
    const whole = extent(lanes);
    store.set({ axis });
    const target = extent(lanes);
    const isWhole = from <= whole[0] && to >= whole[1];
    const [first, last] = isWhole ? target : [lane.x(start), lane.x(end)];
    store.set(clamped(first, last, target));
}

/** Corrects combinations that are not possible: a link may contain them. */
export function answerable(state: State, hasSegments: boolean): State {
    if (state.metric !== 'reserved' || (hasSegments && state.by !== OF_BLOCKS_ONLY)) return state;
    return { ...state, metric: 'allocated' };
}

/** The lane that has a device, if the other one lacks it. */
function onlyIn(lanes: readonly Lane[], device: number): string {
    const having = lanes.filter(({ recording }) => recording.figures.devices.some((each) => each.device === device));
    return having.length === lanes.length ? '' : ` (only ${having.map((each) => each.letter).join(' and ')})`;
}

/** The bytes at the cursor that the search finds, in words; `null` without a search, and for segments, which it does not find. */
async function matching({ at, device, found, recording, store }: Lane): Promise<string | null> {
    const { metric } = store.state;
    if (!found || metric === 'reserved') return null;
    const instant = ['entry', at, at + 0.5, 1] as const;
    const [[held], total] = await Promise.all([
        recording.client.ask('held', [device.device, metric, ...instant, Uint32Array.from(found)]),
        recording.value(device.device, metric, at),
    ]);
    return `${bytes(held)} of ${bytes(total)}`;
}

/** Fills the row of controls. */
export function showControls(
    lanes: readonly Lane[],
    go: { whole: () => void; peak: () => void },
    fail: (error: unknown) => void,
): void {
    const [lane] = lanes;
    const { store } = lane;
    const recordings = lanes.map((each) => each.recording);
    const { by: groups, hasTimes, hasSegments } = common(recordings);
    const host = byId('controls');
    const parts: HTMLElement[] = [];

    const devices = devicesOf(recordings);
    const device = select(
        'Device',
        devices.map((each) => [String(each.device), name(each.name, 60) + onlyIn(lanes, each.device)] as const),
        (value) => void changeDevice(lanes, Number(value)).catch(fail),
    );
    if (devices.length > 1) parts.push(element('label', {}, 'device ', device));
    const by = select(
        'Groups',
        groups.map((each) => [each, each] as const),
        (by) => {
            const isForBlocks = by === OF_BLOCKS_ONLY && store.state.metric === 'reserved';
            store.set({ by, selected: null, ...(isForBlocks ? { metric: 'allocated' } : {}) });
        },
    );
    const bands = element('span', { class: 'note' });
    parts.push(element('label', {}, 'by ', by), bands);
    const metric = select(
        'Metric',
        METRICS.filter((each) => hasSegments || each !== 'reserved').map((each) => [each, each] as const),
        (value) => {
            const isForBlocks = value === 'reserved' && store.state.by === OF_BLOCKS_ONLY;
            store.set({ metric: value as State['metric'], ...(isForBlocks ? { by: 'site' } : {}) });
        },
    );
    parts.push(element('label', {}, 'metric ', metric));

    const together = [...recordings, ...lane.beside];
    const titles = Object.entries(AXES).filter(([axis]) => axis !== 'step' || together.length > 1) as [Axis, string][];
    // The first press folds idle periods, if there are any, and the second one draws them to scale.
    const timed = timeAxis(together);
    const chosen = (axis: Axis): Axis => (axis !== 'time' || store.state.axis === timed ? axis : timed);
    const axes = titles.map(([axis, title]) => button(axis, `x axis: ${title}`, () => changeAxis(lanes, chosen(axis))));
    axes[1].disabled = !hasTimes;
    if (timed === 'folded') axes[1].title = 'x axis: time, with long idle periods shortened; press again to draw them to scale';
    const fit = button('fit height', 'Scale the visible part to the full height (y)', () =>
        store.set({ fit: !store.state.fit }),
    );
    fit.className = 'over-time';
    parts.push(element('span', { class: 'group over-time', role: 'group', 'aria-label': 'Axis' }, ...axes), fit);
    parts.push(
        element(
            'span',
            { class: 'group over-time', role: 'group', 'aria-label': 'Range' },
            button('whole run', 'Show all of it (0)', go.whole),
            button('peak', 'Go to the peak (p)', go.peak),
        ),
    );

    const search = element('input', {
        type: 'search',
        placeholder: 'search stacks (regex)',
        'aria-label': 'Search stacks with a regular expression',
        id: 'search',
        spellcheck: 'false',
    });
    const count = element('output', { id: 'found', for: 'search' });
    let timer = 0;
    search.addEventListener('input', () => {
        clearTimeout(timer);
        timer = window.setTimeout(() => store.set({ query: search.value }), 200);
    });
    parts.push(element('span', { class: 'search' }, search, ' ', count));
    host.replaceChildren(...parts);

    /** The bytes that the search finds, in words. */
    let weighed = '';
    const update = (state: Readonly<State>) => {
        device.value = String(state.device);
        by.value = state.by;
        bands.textContent =
            stackedBy(state.by) === state.by ? '' : `the bands show ${stackedBy(state.by)}, because groups by ${state.by} overlap`;
        metric.value = state.metric;
        axes.forEach((each, at) => each.setAttribute('aria-pressed', String(titles[at][0] === (state.axis === 'folded' ? 'time' : state.axis))));
        if (axes.length > 2) {
            const why = whyNotAligned(together, state.device);
            axes[2].disabled = why !== null;
            axes[2].title = why === null ? `x axis: ${AXES.step}` : `Steps cannot be aligned: ${why}`;
        }
        fit.setAttribute('aria-pressed', String(state.fit));
        if (search.value !== state.query && document.activeElement !== search) search.value = state.query;
        const found = lanes.map((each) => each.found);
        count.className = '';
        if (state.query === '') count.textContent = '';
        else if (lane.problem !== null) {
            count.className = 'alarm';
            count.textContent = name(lane.problem, 80);
        } else if (found.every((each) => each !== null)) {
            const all = found.map((each) => whole(each.size)).join(' / ');
            count.textContent = `${all} found${weighed === '' ? '' : `: ${weighed}`}`;
        }
    };
    const weigh = new Latest();
    store.subscribe((_, changed) => {
        if (touches(changed, 'found', 'at', 'at2', 'metric', 'device')) {
            weigh.run(async () => {
                try {
                    weighed = (await Promise.all(lanes.map(matching))).filter((each) => each !== null).join(' / ');
                    update(store.state);
                } catch (error) {
                    fail(error);
                }
            });
        }
    });
    store.subscribe(update);
    update(store.state);
}
