/** The engine's answers about what is tried, as a table with notes. */

import type { Prediction, Tried } from '../engine/engine.d.ts';
import { button, element } from './dom.ts';
import { bytes, entryOf, growth, name, whole } from './format.ts';
import type { Lane } from './lane.ts';
import { predictions as predictionsOf } from './predicted.ts';
import { capacity as asCapacity, command, typed } from './shell.ts';
import { attempt, changesOf, isTried } from './state.ts';
import type { Varied } from './varied.ts';

/** Words for how far you can trust figures. */
const TRUST: Record<string, string> = {
    exact: 'The simulation of this recording is exact',
    predicted: 'Predicted',
    uncertain: 'Uncertain',
    refused: 'Not simulated',
};

function note(text: string): HTMLElement {
    return element('p', { class: 'note' }, name(text, 1000));
}

function row(cells: readonly string[], tag: 'td' | 'th' = 'td'): HTMLElement {
    const [first, ...rest] = cells;
    return element('tr', {}, element('th', { scope: 'row' }, first), ...rest.map((cell) => element(tag, {}, cell)));
}

function trust(of: { trust: string; because: string }): HTMLElement {
    return note(`${TRUST[of.trust] ?? of.trust}${of.because === '' ? '' : `: ${of.because}`}.`);
}

/** For one recording: its recorded peaks, and the peaks with what is tried. */
export async function simulated(lane: Lane): Promise<HTMLElement[]> {
    const { device, recording, store } = lane;
    if (!isTried(store.state))
        return [note('Choose a size, settings or changes: memviz draws their curve over the recorded one and shows their peaks here.')];
    const answer = await recording.client.ask('tried', [device.device, ...attempt(store.state)]);
    if (!answer) return [note('These changes make no significant difference.')];
    const { cures, conf, capacity } = store.state;
    const same = command(
        ['simulate', typed(recording.name)],
        [
            ['--device', recording.figures.devices.length > 1 ? String(device.device) : null],
            ['--alloc-conf', conf],
            ['--capacity', asCapacity(capacity)],
            ...changesOf(store.state).map((change) => optionOf(change)),
        ],
    );
    return [
        // A run that ends early has no peak to compare.
        ...(answer.allocated && answer.reserved && answer.fails === null ? [peaks(answer)] : []),
        ...outcome(lane, answer),
        trust(answer),
        ...answer.warnings.map(note),
        ...(cures === '' ? [element('p', {}, element('code', {}, name(same, 1000)))] : []),
    ];
}

/** The option of the command line for a change. */
function optionOf(change: string): [string, string] {
    const at = change.indexOf(':');
    return [`--${change.slice(0, at)}`, change.slice(at + 1)];
}

function peaks({ allocated, reserved, reserved_range: range }: Tried): HTMLElement {
    const cells = (title: string, of: Tried['allocated'], more = '') =>
        row([title, bytes(of!.before), bytes(of!.after) + more, growth(of!.after - of!.before)]);
    const between = range ? ` (${bytes(range[0])} to ${bytes(range[1])})` : '';
    return element(
        'table',
        { class: 'figures' },
        element('thead', {}, row(['', 'recorded', 'simulated', 'change'], 'th')),
        element('tbody', {}, cells('peak allocated', allocated), cells('peak reserved', reserved, between)),
    );
}

/** Whether every request is served, and on which device. */
function outcome(lane: Lane, { allocated, capacity_bytes: usable, fails, retries }: Tried): HTMLElement[] {
    if (!allocated || retries === null) return [];
    const device = usable === null ? 'on an unlimited device' : `with ${bytes(usable)} for the allocator`;
    if (fails === null) {
        const again = retries > 0 ? `, ${whole(retries)} after the cache was emptied` : '';
        return [element('p', { class: 'good' }, `Every request is served ${device}${again}.`)];
    }
    const link = button(entryOf(fails, lane.device.entries), 'Go to the request that fails', () => {
        lane.at = fails;
    });
    link.className = 'link';
    return [element('p', { class: 'alarm' }, `Out of memory ${device}, at `, link, '.')];
}

/** For two recordings that differ in one number: the needs at other numbers. */
export async function fitAnswer(lanes: readonly Lane[], varied: Varied | null): Promise<HTMLElement[]> {
    if (!varied) return [note('Enter what A and B differ in, such as batch=4,8: memviz predicts what other values need.')];
    const { conf, capacity, value } = lanes[0].store.state;
    const of = await predictionsOf(lanes, varied);
    const same = command(
        ['fit', ...lanes.map(({ recording }, at) => typed(recording.name, 'AB'[at]))],
        [
            ['--vary', `${varied.name}=${varied.values.join()}`],
            ['--at', value > 0 ? String(value) : null],
            ['--alloc-conf', conf],
            ['--capacity', asCapacity(capacity)],
        ],
    );
    if (of.refused !== null) return [element('p', { class: 'alarm' }, name(of.refused, 1000)), element('p', {}, element('code', {}, name(same, 1000)))];
    const { predictions, largest } = of.scaling;
    const head = [varied.name, '', 'peak allocated', 'peak reserved', ...(capacity > 0 ? ['on the device'] : [])];
    const said = new Set(predictions.filter(({ because }) => because !== '').map(({ because }) => because));
    return [
        element(
            'table',
            { class: 'figures' },
            element('thead', {}, row(head, 'th')),
            element('tbody', {}, ...predictions.map((each) => predicted(each, value, capacity > 0))),
        ),
        ...(largest !== null ? [element('p', { class: 'good' }, `The largest ${name(varied.name, 40)} that fits is ${whole(largest)}.`)] : []),
        ...[...said].map(note),
        ...of.notes.map(note),
        element('p', {}, element('code', {}, name(same, 1000))),
    ];
}

function predicted(of: Prediction, value: number, hasDevice: boolean): HTMLElement {
    const between = (range: [number, number] | null) => (range ? ` (${bytes(range[0])} to ${bytes(range[1])})` : '');
    const made = row([
        whole(of.value),
        of.recorded ? 'recorded' : of.trust,
        bytes(of.max_allocated_bytes) + between(of.max_allocated_bytes_range),
        bytes(of.max_reserved_bytes) + between(of.max_reserved_bytes_range),
        ...(hasDevice ? [of.finishes ? 'fits' : 'out of memory'] : []),
    ]);
    if (of.value === value) made.setAttribute('aria-current', 'true');
    return made;
}
