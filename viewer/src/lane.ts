/** One of at most two recordings that are looked at together, and what of it the state speaks of. */

import type { DeviceFigures, FailedRequest, Frame } from '../engine/engine.d.ts';
import { possibleAxis } from './aligned.ts';
import { name } from './format.ts';
import type { Recording } from './recording.ts';
import { AS_RECORDED, type State, type Store } from './state.ts';

export class Lane {
    /** Allocations whose stacks the search finds, in rising order; `null` where nothing is searched for. */
    found: ReadonlySet<number> | null = null;
    /** Why it finds nothing: the pattern is none. */
    problem: string | null = null;
    /** Where it diverges from the other recording, where there are two and that is known. */
    diverges: number | null = null;
    /** Other ranks of the same run, whose tracks are shown beside. */
    beside: readonly Recording[] = [];
    /** Microseconds from the start of this recording to those of its ranks, where their clocks show them; else empty. */
    lags: ReadonlyMap<Recording, number> = new Map();
    /** The highest point of a predicted curve. */
    predicted = 0;

    constructor(
        readonly recording: Recording,
        readonly store: Store,
        readonly second: boolean,
    ) {}

    /** The device that is looked at; a file that lacks it shows its first one. */
    get device(): DeviceFigures {
        return this.recording.device(this.store.state.device);
    }

    /** What it is called where there are two. */
    get letter(): 'A' | 'B' {
        return this.second ? 'B' : 'A';
    }

    /** The instant that is looked at. */
    get at(): number {
        const { at, at2 } = this.store.state;
        return Math.min(this.second ? at2 : at, this.device.entries);
    }

    set at(instant: number) {
        this.store.set(this.second ? { at2: instant } : { at: instant });
    }

    /** The other instant, to compare with: within one file only. */
    get mark(): number | null {
        const { mark } = this.store.state;
        return this.second || mark === null ? null : Math.min(mark, this.device.entries);
    }

    /** The instants between the mark and the cursor, where there is a mark. */
    get range(): [from: number, to: number] | null {
        const { at, mark } = this;
        return mark === null ? null : [Math.min(at, mark), Math.max(at, mark)];
    }

    /** Where an instant lies on the axis that is looked at. */
    x(instant: number): number {
        return this.recording.x(this.device.device, instant, this.store.state.axis);
    }

    /** The stack of an allocation, innermost frame first; of one that has none, that of its forward call below a line that says so. */
    async stack(allocation: number): Promise<Frame[]> {
        const { stack, forward, forward_inferred } = await this.recording.client.ask('allocation', [this.device.device, allocation]);
        if (stack.length > 0 || forward.length === 0) return stack;
        const label = `no stack was recorded; of its forward call${forward_inferred ? ' (inferred)' : ''}:`;
        return [{ label, path: '', own: false }, ...forward];
    }

    extent(): [number, number] {
        return this.recording.extent(this.device.device, this.store.state.axis);
    }

    /** The first instant of the highest of what is looked at. */
    peak(state: Readonly<State> = this.store.state): number {
        return this.device.peak[state.metric].instant;
    }
}

/** What the lanes are called where they are named together: with their devices, unless that is one and the same. */
export function letters(lanes: readonly Lane[]): string[] {
    const names = new Set(lanes.map((lane) => lane.device.name));
    return lanes.map((lane) => (names.size === 1 ? lane.letter : `${lane.letter}, ${name(lane.device.name, 40)}`));
}

/** Whether the lanes are of memory of one kind: of devices, or of the same kind of the host's. */
export function isOneKind(lanes: readonly Lane[]): boolean {
    const kinds = lanes.map(({ device }) => (device.device < 0 ? device.name : 'device'));
    return new Set(kinds).size === 1;
}

/** The instant of another lane that is as far into the same step as the cursor of a lane; `null` where there is none. */
export function sameStep(lane: Lane, other: Lane): number | null {
    const steps = (of: Lane) => of.recording.steps(of.device.device);
    const { at } = lane;
    const place = steps(lane).findIndex(({ from, to }) => from < at && at <= to);
    const [step, like] = [steps(lane)[place], steps(other)[place]];
    if (!step || !like) return null;
    const part = (at - step.from) / (step.to - step.from);
    return Math.max(like.from + 1, Math.round(like.from + part * (like.to - like.from)));
}

/** Moves the lanes to another device, all of it, at its first failed request or its peak. */
export async function changeDevice(lanes: readonly Lane[], device: number): Promise<void> {
    await Promise.all(lanes.map(({ recording }) => recording.prepare(recording.device(device).device)));
    const { store } = lanes[0];
    const recordings = [...lanes.map(({ recording }) => recording), ...lanes[0].beside];
    const axis = possibleAxis(store.state.axis, recordings, device, 'entry');
    store.set({ device, axis, selected: null, mark: null, ...AS_RECORDED });
    const [from, to] = extent(lanes);
    store.set({ from, to });
    for (const lane of lanes) {
        const failed = lanes.length === 1 ? lane.device.ooms[0]?.instant : undefined;
        lane.at = isStill([lane]) ? lane.device.entries : (failed ?? lane.peak());
    }
}

/** Whether little but the state at the dump is known of all lanes, which a ring of one entry may end with: nothing over time. */
export function isStill(lanes: readonly { device: DeviceFigures }[]): boolean {
    return lanes.every(({ device }) => device.entries <= 1);
}

/** A device by its number and name. */
export type Device = Pick<DeviceFigures, 'device' | 'name'>;

/** The devices that any of some recordings has: those of the first, then what others have besides. */
export function devicesOf(recordings: readonly { figures: { devices: readonly Device[] } }[]): Device[] {
    const all = new Map<number, Device>();
    for (const { figures } of recordings) {
        for (const each of figures.devices) if (!all.has(each.device)) all.set(each.device, each);
    }
    return [...all.values()];
}

/** What all recordings need on the axis, so that one scale serves them. */
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

/** Where a failed request would have been: above what was reserved, or allocated where that is not known. */
export function missing({ has_reserved }: DeviceFigures, oom: FailedRequest): { from: number; to: number } {
    const from = has_reserved ? oom.reserved_bytes : oom.allocated_bytes;
    return { from, to: from + oom.requested_bytes };
}

/** The highest point that any of them shows over the whole run. */
export function top(lanes: readonly Lane[]): number {
    let most = 1;
    for (const { device, predicted, store } of lanes) {
        const held = Math.max(device.peak[store.state.metric].bytes, device.peak.reserved.bytes);
        most = Math.max(most, held, predicted);
        // A limit far above everything would leave nothing to see, as would the first failed request.
        const wanted = device.ooms.length > 0 ? missing(device, device.ooms[0]).to : 0;
        for (const bytes of [device.capacity_bytes ?? 0, wanted]) {
            if (bytes < 1.6 * held) most = Math.max(most, bytes);
        }
    }
    return most * 1.06;
}
