/** The verdict and the totals of the shown device. */

import type { Finding, Metric } from '../engine/engine.d.ts';
import { between } from './bounds.ts';
import { byId, element } from './dom.ts';
import { bound, bytes, duration, name, whole } from './format.ts';
import { isOneKind, isStill, letters, type Lane } from './lane.ts';

/** Shows the totals of each lane. */
export function showFigures(lanes: readonly Lane[]): void {
    const names = lanes.length > 1 ? letters(lanes) : [null];
    byId('figures').replaceChildren(...lanes.flatMap((lane, at) => figures(lane, names[at])));
}

/** The totals of a lane, which has a name if there are two. */
function figures(lane: Lane, called: string | null): HTMLElement[] {
    const { device, recording } = lane;
    const parts: HTMLElement[] = [];
    const add = (key: string, value: string, exact: string | null, id?: string) => {
        const shown = element(
            'div',
            { class: 'value' },
            value,
            exact === null ? null : element('span', { class: 'exact' }, exact),
        );
        if (id) shown.dataset.figure = id;
        parts.push(element('div', {}, element('div', { class: 'key' }, key), shown));
    };
    const prefix = called === null ? '' : `${called}: `;
    const peak = (metric: Metric, words: string) => {
        const { bytes: count, bound: kind } = device.peak[metric];
        add(prefix + words, bound(kind) + bytes(count), whole(count), `${lane.second ? 'second-' : ''}peak-${metric}`);
    };
    const still = isStill([lane]);
    if (still) {
        const dump = (words: string, count: number) => add(prefix + words, bytes(count), whole(count));
        const { allocated, active, reserved } = device.end;
        dump('allocated at the dump', allocated);
        if (device.has_reserved) {
            dump('reserved at the dump', reserved);
            dump('free in segments', reserved - active);
        }
    } else {
        peak('allocated', 'peak allocated');
        if (device.has_reserved) peak('reserved', 'peak reserved');
    }
    if (called === null) {
        if (!still) add('allocated at the end', bytes(device.end.allocated), null);
        const before = bound(device.baseline_bound) + bytes(device.baseline.allocated);
        if (device.baseline.allocated > 0 && !still) add('from before the recording', before, null);
        if (device.capacity_bytes !== null) add('could be reserved', bytes(device.capacity_bytes), null);
    }
    if (device.entries > 0) {
        const time = recording.figures.has_times ? `in ${duration(device.end_us - device.start_us)}` : null;
        add(`${prefix}entries`, whole(device.entries), time);
    }
    const doubts = [...device.doubts, ...recording.figures.notes];
    const [first, ...rest] = doubts.map((doubt) => name(prefix + doubt, 400));
    if (first !== undefined) {
        const others = rest.map((doubt) => element('div', {}, doubt));
        const all = () => element('details', { class: 'doubt' }, element('summary', {}, `${first} (and ${rest.length} more)`), ...others);
        parts.push(rest.length > 0 ? all() : element('div', { class: 'doubt' }, first));
    }
    return parts;
}

/** The verdict: the most urgent finding, or the peak if there is none yet. */
export function showVerdict(lanes: readonly Lane[], findings: readonly Finding[]): void {
    const verdict = byId('verdict');
    const [first, second] = lanes;
    const isAlarm = !second && findings[0]?.severity === 'alarm';
    const isElsewhere = findings[0] && findings[0].device !== first.device.device;
    const place = isElsewhere ? `${first.recording.device(findings[0].device).name}: ` : '';
    const { allocated } = first.device.peak;
    const most = `${bound(allocated.bound)}${bytes(allocated.bytes)} allocated`;
    const peak = isStill(lanes) ? `${bytes(first.device.end.allocated)} allocated at the dump` : `Peak of ${most}`;
    let text = findings[0] ? place + findings[0].sentence : peak;
    if (second) text = isOneKind(lanes) ? between(allocated, second.device.peak.allocated) : differing(lanes);
    verdict.textContent = name(text, 1000);
    verdict.classList.toggle('alarm', isAlarm);
    verdict.classList.toggle('failed', !second && first.device.ooms.length > 0);
}

/** The text for memory of two kinds, which has no difference. */
function differing(lanes: readonly Lane[]): string {
    return lanes.map((lane) => `${lane.letter} is ${lane.device.name}`).join(', ');
}
