// Asks the engine about recordings, as the page does, and prints what it says: a line of JSON for each file that is named on
// standard input.

import { closeSync, fstatSync, openSync, readFileSync, readSync } from 'node:fs';
import { createInterface } from 'node:readline';

const COLUMNS = 64;

/** A module of its own for each recording, as each has a worker of its own. */
async function fresh(count) {
    const engine = await import(`../pkg/engine.js?${count}`);
    engine.initSync({ module: readFileSync(new URL('../pkg/engine_bg.wasm', import.meta.url)) });
    return engine.Engine;
}

function answers(engine) {
    const figures = JSON.parse(engine.figures());
    const devices = figures.devices.map(({ device, entries, start_us, end_us, peak }) => {
        const { instant } = peak.allocated;
        const highest = (metric, axis, from, to) => Math.max(...engine.curve(device, metric, axis, from, to, COLUMNS).values);
        const bands = engine.bands(device, 'allocated', 'site', 'entry', 0, Math.max(entries, 1), COLUMNS, 5);
        const column = bands.instants.indexOf(instant);
        return {
            device,
            highest: Object.fromEntries(
                Object.keys(peak).map((metric) => [
                    metric,
                    [
                        highest(metric, 'entry', 0, Math.max(entries, 1)),
                        figures.has_times ? highest(metric, 'time', start_us, Math.max(end_us, start_us + 1)) : null,
                    ],
                ]),
            ),
            bands: bands.groups.map(({ label }, row) => [label, bands.values[row * COLUMNS + column]]),
            attributions: Object.fromEntries(figures.by.map((by) => [by, engine.attribution(device, 'allocated', by, instant, 10)])),
            segments: JSON.parse(engine.segments(device, instant)),
            difference: JSON.parse(engine.difference(device, 'active', 'site', 0, instant, 3)),
            pools: JSON.parse(engine.difference(device, 'active', 'pool', 0, instant, 0)).notes,
            steps: JSON.parse(engine.steps(device)),
        };
    });
    return { figures, devices, findings: JSON.parse(engine.findings()) };
}

let count = 0;
for await (const path of createInterface({ input: process.stdin })) {
    const file = openSync(path);
    const { size } = fstatSync(file);
    const read = (at, length) => {
        const bytes = new Uint8Array(Math.max(0, Math.min(length, size - at)));
        let done = 0;
        while (done < bytes.length) done += readSync(file, bytes, done, bytes.length - done, at + done);
        return bytes;
    };
    let said;
    try {
        const Engine = await fresh(count++);
        said = answers(Engine.open(read, path, '', ''));
    } catch (error) {
        said = { error: error.message };
    }
    closeSync(file);
    process.stdout.write(`${JSON.stringify({ path, ...said })}\n`);
}
