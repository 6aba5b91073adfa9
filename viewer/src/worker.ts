/** The worker: holds the engine and answers the page's questions, in their order. */

import { Engine, initSync } from '../engine/pkg/engine.js';
import type { Question, Reply, Requests } from './protocol.ts';

declare module '../engine/pkg/engine.js' {
    /** Makes the instance that the engine lives in. */
    export function initSync(options: { module: BufferSource }): unknown;
}

/** The wasm module, which the page holds compressed. */
async function unpacked(blob: Blob): Promise<ArrayBuffer> {
    const head = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
    const isGzip = head[0] === 0x1f && head[1] === 0x8b;
    return isGzip
        ? new Response(blob.stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer()
        : blob.arrayBuffer();
}

let engine: Engine | null = null;

async function open(module: Blob, recording: Blob, name: string, options: string): Promise<string> {
    initSync({ module: await unpacked(module) });
    const reader = new FileReaderSync();
    const read = (at: number, length: number) =>
        new Uint8Array(reader.readAsArrayBuffer(recording.slice(at, at + length)));
    engine = Engine.open(read, name, options);
    return engine.figures();
}

async function answer(question: Question): Promise<unknown> {
    if (question.name === 'open') return open(...(question.args as Requests['open']['args']));
    if (!engine) throw new Error('no recording is open');
    const method = engine[question.name as keyof Engine] as (...args: unknown[]) => unknown;
    return method.apply(engine, question.args);
}

/** Buffers that can be given away instead of copied. */
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
