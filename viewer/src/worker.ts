/** The worker: contains the engine and answers the page's questions in order. */

import { Engine, Fit, initSync } from '../engine/pkg/engine.js';
import type { Carried, Question, Reply, Requests } from './protocol.ts';

declare module '../engine/pkg/engine.js' {
    /** Creates the instance that contains the engine. */
    export function initSync(options: { module: BufferSource }): unknown;
}

/** The wasm module, which the page stores compressed. */
async function unpacked(blob: Blob): Promise<ArrayBuffer> {
    const head = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
    const isGzip = head[0] === 0x1f && head[1] === 0x8b;
    return isGzip
        ? new Response(blob.stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer()
        : blob.arrayBuffer();
}

/** The engine: for one recording, or for several together. */
let engine: Engine | Fit | null = null;

/** Reads a file piece by piece. */
function reader({ bytes }: Carried): (at: number, length: number) => Uint8Array {
    const reader = new FileReaderSync();
    return (at, length) => new Uint8Array(reader.readAsArrayBuffer(bytes.slice(at, at + length)));
}

async function open(module: Blob, recording: Carried): Promise<string> {
    initSync({ module: await unpacked(module) });
    const made = Engine.open(reader(recording), recording.name, recording.options, recording.samples);
    engine = made;
    return made.figures();
}

async function openFit(module: Blob, recordings: readonly Carried[]): Promise<null> {
    initSync({ module: await unpacked(module) });
    const fit = new Fit();
    for (const recording of recordings) fit.add(reader(recording), recording.name, recording.options);
    engine = fit;
    return null;
}

async function answer(question: Question): Promise<unknown> {
    if (question.name === 'open') return open(...(question.args as Requests['open']['args']));
    if (question.name === 'open_fit') return openFit(...(question.args as Requests['open_fit']['args']));
    if (!engine) throw new Error('no recording is open');
    const method = engine[question.name as keyof typeof engine] as (...args: unknown[]) => unknown;
    return method.apply(engine, question.args);
}

/** Buffers that can be transferred instead of copied. */
function buffers(value: unknown): Transferable[] {
    const parts = ArrayBuffer.isView(value) ? [value] : Object.values((value as object | null) ?? {});
    return parts.filter((part) => ArrayBuffer.isView(part)).map((part) => part.buffer as ArrayBuffer);
}

// One after the other: while a recording is being opened, questions wait.
let last: Promise<void> = Promise.resolve();

self.onmessage = (event: MessageEvent<Question>) => {
    const question = event.data;
    last = last.then(async () => {
        let reply: Reply;
        try {
            reply = { id: question.id, answer: await answer(question) };
        } catch (error) {
            reply = { id: question.id, error: error instanceof Error ? error.message : String(error) };
        }
        const transfer = 'answer' in reply && typeof reply.answer === 'object' ? buffers(reply.answer) : [];
        self.postMessage(reply, { transfer });
    });
};
