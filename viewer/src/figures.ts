/** The verdict and the totals of the device that is looked at. */

import type { Finding, Metric } from '../engine/engine.d.ts';
import { byId, element } from './dom.ts';
import { bound, bytes, duration, name, whole } from './format.ts';
import type { Lane } from './lane.ts';

/** Shows the totals of each lane. */
export function showFigures(lanes: readonly Lane[]): void {
    byId('figures').replaceChildren(...lanes.flatMap((lane) => figures(lane, lanes.length > 1)));
}

function figures(lane: Lane, isPair: boolean): HTMLElement[] {
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
    const prefix = isPair ? `${lane.second ? 'B' : 'A'}: ` : '';
    const peak = (metric: Metric, words: string) => {
        const { bytes: count, bound: kind } = device.peak[metric];
        add(prefix + words, bound(kind) + bytes(count), whole(count), `${lane.second ? 'second-' : ''}peak-${metric}`);
    };
    peak('allocated', 'peak allocated');
    if (recording.figures.has_segments) peak('reserved', 'peak reserved');
    if (!isPair) {
        add('allocated at the end', bytes(device.end.allocated), null);
        if (device.baseline.allocated > 0) add('from before the recording', bytes(device.baseline.allocated), null);
        if (device.capacity_bytes !== null) add('could be reserved', bytes(device.capacity_bytes), null);
    }
    add(
        `${prefix}entries`,
        whole(device.entries),
        recording.figures.has_times ? `in ${duration(device.end_us - device.start_us)}` : null,
    );
    const doubts = [...device.doubts, ...recording.figures.notes];
    if (doubts.length > 0) {
        const shown = element(
            'div',
            { class: 'doubt' },
            name(doubts[0], 180),
            doubts.length > 1 ? ` (and ${doubts.length - 1} more)` : '',
        );
        shown.title = doubts.map((doubt) => name(doubt, 400)).join('\n');
        parts.push(shown);
    }
    return parts;
}

/** One line that says what is the matter: the most urgent finding, or the peak where there is none or none yet. */
export function showVerdict(lanes: readonly Lane[], findings: readonly Finding[]): void {
    const verdict = byId('verdict');
    const [first, second] = lanes;
    const { bytes: peak } = first.device.peak.allocated;
    const isAlarm = !second && findings[0]?.severity === 'alarm';
    const isElsewhere = findings[0] && findings[0].device !== first.device.device;
    const place = isElsewhere ? `${first.recording.device(findings[0].device).name}: ` : '';
    let text = findings[0] ? place + findings[0].sentence : `Peak of ${bytes(peak)} allocated`;
    if (second) {
        const change = second.device.peak.allocated.bytes - peak;
        text =
            change === 0
                ? 'Both peaks are the same'
                : `The peak of B is ${bytes(Math.abs(change))} ${change > 0 ? 'higher' : 'lower'} than that of A`;
    }
    verdict.textContent = name(text, 300);
    verdict.title = name(text, 1000);
    verdict.classList.toggle('alarm', isAlarm);
}
