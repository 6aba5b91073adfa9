/** One of at most two recordings that are shown together, and its part of the state. */

import type { DeviceFigures, FailedRequest } from '../engine/engine.d.ts';
import { possibleAxis } from './aligned.ts';
import { holders, name } from './format.ts';
import { clamped } from './navigate.ts';
import type { Recording } from './recording.ts';
import { AS_RECORDED, type State, type Store } from './state.ts';
import { stackLines, type TipLine } from './tip.ts';

export class Lane {
    /** Allocations whose stacks the search finds, in ascending order; `null` without a search. */
    found: ReadonlySet<number> | null = null;
    /** Why it finds nothing: the pattern is invalid. */
    problem: string | null = null;
    /** Where it diverges from the other recording, if there are two and this is known. */
    diverges: number | null = null;
    /** Other ranks of the same run, whose tracks are also shown. */
    beside: readonly Recording[] = [];
    /** Microseconds from the start of this recording to those of its ranks, if their clocks show it; otherwise empty. */
    lags: ReadonlyMap<Recording, number> = new Map();
    /** The highest point of a predicted curve. */
    predicted = 0;

    constructor(
        readonly recording: Recording,
        readonly store: Store,
        readonly second: boolean,
    ) {}

    /** The shown device; a file that lacks it shows its first one. */
    get device(): DeviceFigures {
        return this.recording.device(this.store.state.device);
    }

    /** Its name if there are two. */
    get letter(): 'A' | 'B' {
        return this.second ? 'B' : 'A';
    }

    /** The instant of the cursor. */
    get at(): number {
        const { at, at2 } = this.store.state;
        return Math.min(this.second ? at2 : at, this.device.entries);
    }

    set at(instant: number) {
        this.store.set(this.second ? { at2: instant } : { at: instant });
    }

    /** The other instant to compare with: only within one file. */
    get mark(): number | null {
        const { mark } = this.store.state;
        return this.second || mark === null ? null : Math.min(mark, this.device.entries);
    }

    /** The instants between the mark and the cursor, if there is a mark. */
    get range(): [from: number, to: number] | null {
        const { at, mark } = this;
        return mark === null ? null : [Math.min(at, mark), Math.max(at, mark)];
    }

    /** The position of an instant on the current axis. */
    x(instant: number): number {
        return this.recording.x(this.device.device, instant, this.store.state.axis);
    }

    /** The category of an allocation, what holds it, its line unless that is `shown`, and its stack, or that of its forward call. */
    async told(allocation: number, shown: string): Promise<TipLine[]> {
        const of = await this.recording.client.ask('allocation', [this.device.device, allocation]);
        const lines = [`${of.category}${of.inferred ? ' *' : ''}`, ...(of.holders.length > 0 ? [`held by ${holders(of.holders)}`] : [])];
        if (of.site !== shown) lines.push(of.site);
        const isForward = of.stack.length === 0 && of.forward.length > 0;
        if (isForward) lines.push(`no stack was recorded; the stack of its forward call${of.forward_inferred ? ' (inferred)' : ''}:`);
        const stack = await stackLines(isForward ? of.forward : of.stack);
        return [...lines.map((text) => ({ text: name(text, 400) })), ...stack];
    }

    extent(): [number, number] {
        return this.recording.extent(this.device.device, this.store.state.axis);
    }

    /** The first instant at which the shown metric is highest. */
    peak(state: Readonly<State> = this.store.state): number {
        return this.device.peak[state.metric].instant;
    }
}

/** The names of the lanes if they are named together: with their devices, unless these are equal. */
export function letters(lanes: readonly Lane[]): string[] {
    const names = new Set(lanes.map((lane) => lane.device.name));
    return lanes.map((lane) => (names.size === 1 ? lane.letter : `${lane.letter}, ${name(lane.device.name, 40)}`));
}

/** Whether the lanes show one kind of memory: of devices, or one kind of host memory. */
export function isOneKind(lanes: readonly Lane[]): boolean {
    const kinds = lanes.map(({ device }) => (device.device < 0 ? device.name : 'device'));
    return new Set(kinds).size === 1;
}

/** The instant of another lane at the same position within the same step as the cursor of a lane; `null` if there is none. */
export function sameStep(lane: Lane, other: Lane): number | null {
    const steps = (of: Lane) => of.recording.steps(of.device.device);
    const { at } = lane;
    const place = steps(lane).findIndex(({ from, to }) => from < at && at <= to);
    const [step, like] = [steps(lane)[place], steps(other)[place]];
    if (!step || !like) return null;
    const part = (at - step.from) / (step.to - step.from);
    return Math.max(like.from + 1, Math.round(like.from + part * (like.to - like.from)));
}

/** Switches the lanes to another device, at its first failed request or its peak. */
export async function changeDevice(lanes: readonly Lane[], device: number): Promise<void> {
    await Promise.all(lanes.map(({ recording }) => recording.prepare(recording.device(device).device)));
    const { store } = lanes[0];
    const recordings = [...lanes.map(({ recording }) => recording), ...lanes[0].beside];
    const axis = possibleAxis(store.state.axis, recordings, device, 'entry');
    store.set({ device, axis, selected: null, mark: null, ...AS_RECORDED });
    const [from, to] = opened(lanes);
    store.set({ from, to });
    for (const lane of lanes) {
        const failed = lanes.length === 1 ? lane.device.ooms[0]?.instant : undefined;
        lane.at = isStill([lane]) ? lane.device.entries : (failed ?? lane.peak());
    }
}

/** Whether only the state at the dump is known in all lanes, perhaps with a ring buffer of one entry: nothing over time. */
export function isStill(lanes: readonly { device: DeviceFigures }[]): boolean {
    return lanes.every(({ device }) => device.entries <= 1);
}

/** A device by its number and name. */
export type Device = Pick<DeviceFigures, 'device' | 'name'>;

/** The devices of some recordings: those of the first one, then further devices of the others. */
export function devicesOf(recordings: readonly { figures: { devices: readonly Device[] } }[]): Device[] {
    const all = new Map<number, Device>();
    for (const { figures } of recordings) {
        for (const each of figures.devices) if (!all.has(each.device)) all.set(each.device, each);
    }
    return [...all.values()];
}

/** The part of the axis that all recordings need, so that they share one scale. */
export function extent(lanes: readonly Lane[]): [number, number] {
    const { axis } = lanes[0].store.state;
    const besides = lanes.flatMap((lane) =>
        lane.beside.flatMap((each) => {
            const lag = axis === 'time' ? (lane.lags.get(each) ?? 0) : 0;
            const placed = each.figures.devices.filter(({ device }) => axis !== 'step' || each.steps(device).length > 0);
            return placed.map(({ device }) => each.extent(device, axis).map((x) => x + lag));
        }),
    );
    const all = [...lanes.map((lane) => lane.extent()), ...besides];
    return [Math.min(...all.map(([from]) => from)), Math.max(...all.map(([, to]) => to))];
}

/** The range that a page opens with: the step in which the first request fails, as in the picture, or otherwise the whole run. */
export function opened(lanes: readonly Lane[]): [number, number] {
    const whole = extent(lanes);
    const [lane] = lanes;
    const [failed] = lane.device.ooms;
    if (lanes.length > 1 || lane.beside.length > 0 || !failed) return whole;
    const steps = lane.recording.steps(lane.device.device);
    const before = steps.findLast(({ to }) => to < failed.instant);
    const around = steps.find(({ to }) => to >= failed.instant);
    if (!before) return whole;
    const { from, to } = clamped(lane.x(before.to), around ? lane.x(around.to) : whole[1], whole);
    return [from, to];
}

/** Where a failed request would have been: above reserved memory, or above allocated memory if that is unknown. */
export function missing({ has_reserved }: DeviceFigures, oom: FailedRequest): { from: number; to: number } {
    const from = has_reserved ? oom.reserved_bytes : oom.allocated_bytes;
    return { from, to: from + oom.requested_bytes };
}

/** The highest point of any of them over the whole run. */
export function top(lanes: readonly Lane[]): number {
    let most = 1;
    for (const { device, predicted, store } of lanes) {
        const held = Math.max(device.peak[store.state.metric].bytes, device.peak.reserved.bytes);
        most = Math.max(most, held, predicted);
        // A limit far above the memory would flatten the curves, and so would the first failed request.
        const wanted = device.ooms.length > 0 ? missing(device, device.ooms[0]).to : 0;
        for (const bytes of [device.capacity_bytes ?? 0, wanted]) {
            if (bytes < 1.6 * held) most = Math.max(most, bytes);
        }
    }
    return most * 1.06;
}
