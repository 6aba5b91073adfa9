/** An open recording: its engine, its figures, and the positions of its instants on the axes. */

import type {
    Annotation,
    Axis,
    DeviceFigures,
    Figures,
    Finding,
    Metric,
    PhaseSpan,
    Sample,
    Steps,
} from '../engine/engine.d.ts';
import { alongSteps } from './aligned.ts';
import { Client } from './client.ts';
import { foldedAt } from './folds.ts';
import type { Carried } from './protocol.ts';
import { openAt } from './ribbons.ts';

/** What all recordings support. */
export function common(recordings: readonly Recording[]): { by: string[]; hasTimes: boolean; hasSegments: boolean } {
    const [{ figures }] = recordings;
    return {
        by: figures.by.filter((each) => recordings.every((recording) => recording.figures.by.includes(each))),
        hasTimes: recordings.every((recording) => recording.figures.has_times),
        hasSegments: recordings.every((recording) => recording.figures.has_segments),
    };
}

/** Data of a device that is fetched once. */
interface Course {
    times: Float64Array;
    annotations: Annotation[];
    steps: Steps;
}

/** Data about a device, requested when it is first needed. */
function once<T>(known: Map<number, Promise<T>>, device: number, ask: () => Promise<T>): Promise<T> {
    let asked = known.get(device);
    if (!asked) {
        asked = ask();
        known.set(device, asked);
    }
    return asked;
}

export class Recording {
    readonly #courses = new Map<number, Course>();
    readonly #phases = new Map<number, Promise<PhaseSpan[]>>();
    readonly #samples = new Map<number, Promise<Sample[]>>();
    #findings: Promise<Finding[]> | null = null;
    /** The findings, if the page has them from the start. */
    readonly known: readonly Finding[] | null;

    private constructor(
        readonly client: Client,
        readonly engine: Blob,
        readonly source: Carried,
        readonly figures: Figures,
    ) {
        this.known = source.findings === '' ? null : (JSON.parse(source.findings) as Finding[]);
    }

    get name(): string {
        return this.source.name;
    }

    /** Opens a file of any kind that the engine reads. */
    static async open(engine: Blob, source: Carried): Promise<Recording> {
        const client = new Client();
        try {
            return new Recording(client, engine, source, await client.ask('open', [engine, source]));
        } catch (error) {
            client.close();
            throw error;
        }
    }

    /** Its first and last microsecond since 1970; `null` if its times are not those of a clock. */
    get clock(): [first: number, last: number] | null {
        const { clock_us: start, devices } = this.figures;
        return start === null ? null : [start, start + Math.max(...devices.map(({ end_us }) => end_us))];
    }

    /** A counter of a device at an instant. */
    async value(device: number, metric: Metric, instant: number): Promise<number> {
        return (await this.client.ask('values', [device, metric, Uint32Array.of(instant)]))[0];
    }

    /** The figures of a device; of the first one if there is no such device. */
    device(number: number): DeviceFigures {
        return this.figures.devices.find((each) => each.device === number) ?? this.figures.devices[0];
    }

    /** Fetches the times of a device's instants, and its steps and annotations; the methods below need them. */
    async prepare(device: number): Promise<void> {
        if (this.#courses.has(device)) return;
        const { client } = this;
        const asked = [
            client.ask('times', [device]),
            client.ask('annotations', [device]),
            client.ask('steps', [device]),
        ] as const;
        const [times, annotations, steps] = await Promise.all(asked);
        this.#courses.set(device, { times, annotations, steps });
    }

    /** The findings: computed once. */
    async findings(): Promise<readonly Finding[]> {
        if (this.known) return this.known;
        this.#findings ??= this.#find();
        return this.#findings;
    }

    /** In parts: other questions are answered in between. */
    async #find(): Promise<Finding[]> {
        while (await this.client.ask('explore', [])) await this.client.calm();
        return this.client.ask('findings', []);
    }

    /** The phases of the program on a device: computed once. */
    phases(device: number): Promise<PhaseSpan[]> {
        return once(this.#phases, device, () => this.client.ask('phases', [device]));
    }

    /** The samples of a whole device. */
    samples(device: number): Promise<Sample[]> {
        return once(this.#samples, device, () => this.client.ask('samples', [device]));
    }

    annotations(device: number): Annotation[] {
        return this.#courses.get(device)?.annotations ?? [];
    }

    steps(device: number): Steps['steps'] {
        return this.#courses.get(device)?.steps.steps ?? [];
    }

    /** Why a device has no steps. */
    whyNoSteps(device: number): string {
        return this.#courses.get(device)?.steps.why ?? 'no steps were found';
    }

    /** The position of an instant. */
    x(device: number, instant: number, axis: Axis): number {
        if (axis === 'entry') return instant;
        if (axis === 'step') return this.along(device, Math.max(0, instant - 1));
        const times = this.#courses.get(device)?.times;
        const time = times && times.length > 0 ? times[Math.min(instant, times.length - 1)] : 0;
        return axis === 'folded' ? foldedAt(this.figures.folds, time) : time;
    }

    /** The position of an entry on the axis of steps; the entry after the last one is at the end of the axis. */
    along(device: number, entry: number): number {
        return alongSteps(this.steps(device), this.device(device).entries, entry);
    }

    /** The last instant that is not after `x`. */
    instant(device: number, x: number, axis: Axis): number {
        const { entries } = this.device(device);
        if (axis === 'entry') return Math.max(0, Math.min(entries, Math.floor(x)));
        let [low, high] = [0, entries];
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (this.x(device, middle, axis) <= x) low = middle;
            else high = middle - 1;
        }
        return low;
    }

    /** The whole range of a device: from its first instant to the end of its last one. */
    extent(device: number, axis: Axis): [number, number] {
        const { entries } = this.device(device);
        if (axis === 'step') return [0, Math.max(1, this.along(device, entries))];
        return [this.x(device, 0, axis), this.x(device, entries, axis) + 1];
    }

    /** The annotations around the entry before an instant, the outermost first. */
    open(device: number, instant: number): string[] {
        return openAt(this.annotations(device), instant).map((each) => each.name);
    }
}
