/** Two recordings of one program that differ in a number: what the program would need at another one. */

import type { Metric, Predicted, Prediction } from '../engine/engine.d.ts';
import { Client } from './client.ts';
import type { Lane } from './lane.ts';
import type { Stretch } from './stacked.ts';
import type { State } from './state.ts';
import { typedVary, type Varied, varyOf } from './varied.ts';

/** What the recordings differ in: as typed, otherwise according to their names. */
export function variedOf(lanes: readonly Lane[]): Varied | null {
    const { vary } = lanes[0].store.state;
    return vary === '' ? varyOf(lanes.map((lane) => lane.recording.name)) : typedVary(vary, lanes.length);
}

/** What a prediction is about; `null` if none was requested. */
export function predictedOf(lanes: readonly Lane[]): Varied | null {
    return lanes.length > 1 && lanes[0].store.state.value > 0 ? variedOf(lanes) : null;
}

/** Both recordings in one engine, for as long as the page shows them. */
const fits = new WeakMap<AbortSignal, Promise<Client>>();

function fitOf(lanes: readonly Lane[]): Promise<Client> {
    const { gone } = lanes[0].store;
    let made = fits.get(gone);
    if (!made) {
        made = (async () => {
            const client = new Client();
            gone.addEventListener('abort', () => client.close(), { once: true });
            const [{ recording }] = lanes;
            await client.ask('open_fit', [recording.engine, lanes.map((lane) => lane.recording.source)]);
            return client;
        })();
        fits.set(gone, made);
        made.catch(() => fits.delete(gone));
    }
    return made;
}

/** The needs at other numbers. */
export async function predictions(lanes: readonly Lane[], { name, values }: Varied): Promise<Predicted['devices'][number]> {
    const { conf, capacity, value } = lanes[0].store.state;
    const client = await fitOf(lanes);
    const { device } = lanes[0].device;
    const at = Float64Array.from(value > 0 ? [value] : []);
    const answer = await client.ask('predicted', [device, name, Float64Array.from(values), at, conf ?? undefined, capacity, 0]);
    return answer.devices[0];
}

/** The prediction for the tried number. */
export async function predictionOf(lanes: readonly Lane[], varied: Varied): Promise<Prediction | null> {
    const { refused, scaling } = await predictions(lanes, varied);
    return refused === null ? (scaling.predictions.find(({ value }) => value === lanes[0].store.state.value) ?? null) : null;
}

/** A counter at the tried number, in the columns of a lane; `null` for the lane that does not define the order of requests. */
export async function predictedCurve(
    lanes: readonly Lane[],
    lane: Lane,
    metric: Metric,
    { axis, value, conf, capacity }: Readonly<State>,
    { from, to, columns }: Stretch,
): Promise<Float64Array | null> {
    const varied = predictedOf(lanes);
    if (!varied) return null;
    const client = await fitOf(lanes);
    const values = Float64Array.from(varied.values);
    const range = [axis, from, to, columns] as const;
    const at = [lanes.indexOf(lane), lanes[0].device.device] as const;
    return client.ask('curve_predicted', [...at, metric, ...range, values, value, conf ?? undefined, capacity]);
}
