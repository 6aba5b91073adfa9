/** Messages between the page and the worker. */

import type * as Engine from '../engine/engine.d.ts';
import type { Axis, By, Metric, RangePart } from '../engine/engine.d.ts';

type Range = [axis: Axis, from: number, to: number, columns: number];
type Attempt = [cures: Uint32Array, conf: string | undefined, capacity: number, changes: string[]];

/** A file to read, and how, as the command line wrote it; empty for the defaults. */
export interface Carried {
    bytes: Blob;
    name: string;
    options: string;
    /** The text of its `.device.json`; empty if there is none. */
    samples: string;
    /** The engine's answer about findings, if the command line wrote it; empty otherwise. */
    findings: string;
}

/** The questions to the engine, and their answers. */
export interface Requests {
    open: { args: [engine: Blob, recording: Carried]; answer: Engine.Figures };
    /** Reads several recordings of one program, for `predicted`. */
    open_fit: { args: [engine: Blob, recordings: Carried[]]; answer: null };
    predicted: {
        args: [
            device: number,
            parameter: string,
            values: Float64Array,
            at: Float64Array,
            conf: string | undefined,
            capacity: number,
            top: number,
        ];
        answer: Engine.Predicted;
    };
    curve_predicted: {
        args: [
            place: number,
            device: number,
            metric: Metric,
            ...Range,
            values: Float64Array,
            value: number,
            conf: string | undefined,
            capacity: number,
        ];
        answer: Float64Array | null;
    };
    times: { args: [device: number]; answer: Float64Array };
    curve: { args: [device: number, metric: Metric, ...Range]; answer: Engine.Curve };
    values: { args: [device: number, metric: Metric, instants: Uint32Array]; answer: Float64Array };
    bands: { args: [device: number, metric: Metric, by: By, ...Range, top: number]; answer: Engine.Bands };
    blocks: { args: [device: number, metric: Metric, by: By, ...Range, limit: number]; answer: Engine.Blocks };
    held: { args: [device: number, metric: Metric, ...Range, allocations: Uint32Array]; answer: Float64Array };
    difference: {
        args: [device: number, metric: Metric, by: By, from: number, to: number, top: number];
        answer: Engine.Difference;
    };
    matched: { args: [by: By, base: string, now: string]; answer: Engine.Partner[] };
    flow: { args: [device: number, metric: Metric, from: number, to: number]; answer: Engine.Flow };
    flame: { args: [device: number, metric: Metric, instant: number]; answer: Engine.FlameNode[] };
    flame_of_range: {
        args: [device: number, metric: Metric, from: number, to: number, part: RangePart];
        answer: Engine.FlameNode[];
    };
    segments: { args: [device: number, instant: number]; answer: Engine.SegmentMap };
    allocation: { args: [device: number, id: number]; answer: Engine.Allocation };
    annotations: { args: [device: number]; answer: Engine.Annotation[] };
    steps: { args: [device: number]; answer: Engine.Steps };
    search: { args: [device: number, pattern: string]; answer: Uint32Array };
    matches: { args: [pattern: string, texts: string[]]; answer: Uint8Array };
    frames: { args: [device: number, labels: string[]]; answer: Engine.Frame[] };
    listed: { args: [device: number, actions: string[], atLeast: number, pattern: string]; answer: Uint32Array };
    events: { args: [device: number, entries: Uint32Array]; answer: Engine.Event[] };
    stack: { args: [device: number, entry: number]; answer: Engine.Frame[] };
    requests: { args: [device: number]; answer: Engine.Asked };
    apart: {
        args: [
            device: number,
            whole: boolean,
            step: number | undefined,
            entries: Uint32Array,
            bytes: Float64Array,
            failed: Uint32Array,
        ];
        answer: Engine.Apart | null;
    };
    request: { args: [device: number, name: string, entry: number | undefined]; answer: string };
    tried: { args: [device: number, ...Attempt]; answer: Engine.Tried | null };
    curve_tried: { args: [device: number, metric: Metric, ...Range, ...Attempt]; answer: Float64Array | null };
    choices: { args: [device: number]; answer: Engine.Choices };
    overlay: { args: [device: number, metric: Metric, columns: number]; answer: Engine.Overlay };
    phases: { args: [device: number]; answer: Engine.PhaseSpan[] };
    samples: { args: [device: number]; answer: Engine.Sample[] };
    gpus: { args: []; answer: Engine.Gpu[] };
    explore: { args: []; answer: boolean };
    findings: { args: []; answer: Engine.Finding[] };
}

export type Name = keyof Requests;

export interface Question<N extends Name = Name> {
    id: number;
    name: N;
    args: Requests[N]['args'];
}

/** Texts are JSON. */
export type Reply = { id: number; answer: unknown } | { id: number; error: string };
