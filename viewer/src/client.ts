/** The engine from the page's point of view: each question returns a promise of its answer. */

import type { Name, Reply, Requests } from './protocol.ts';
import source from 'worker:./worker.ts';

interface Waiting {
    resolve: (answer: never) => void;
    reject: (error: Error) => void;
}

let waiting = 0;

/** Shows on the page that answers are pending. */
function count(more: number): void {
    waiting += more;
    document.documentElement.dataset.waiting = String(waiting);
}

/** Waits, and shows this on the page. */
async function rest(time: number): Promise<void> {
    count(1);
    await new Promise((over) => setTimeout(over, time));
    count(-1);
}

/** Milliseconds without a question after which the reader seems to be done. */
const CALM = 150;

export class Client {
    #worker: Worker;
    #waiting = new Map<number, Waiting>();
    #next = 0;
    readonly #url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    #isClosed = false;
    /** When the last question for a visible view was asked. */
    #asked = 0;

    constructor() {
        this.#worker = new Worker(this.#url);
        this.#worker.onmessage = (event: MessageEvent<Reply>) => this.#receive(event.data);
        this.#worker.onerror = (event) => this.#fail(event.message || 'the engine has stopped');
    }

    /** Asks the engine. Answers come in the order of the questions. */
    ask<N extends Name>(name: N, args: Requests[N]['args']): Promise<Requests[N]['answer']> {
        // Pending questions are dropped by close() in the same way.
        if (this.#isClosed) return new Promise(() => {});
        const id = this.#next++;
        if (name !== 'explore') this.#asked = performance.now();
        return new Promise((resolve, reject) => {
            this.#waiting.set(id, { resolve, reject });
            count(1);
            this.#worker.postMessage({ id, name, args });
        });
    }

    /** Waits until no question other than long-running ones has been asked for a while. */
    async calm(): Promise<void> {
        while (!this.#isClosed && performance.now() - this.#asked < CALM) await rest(CALM);
    }

    /** Ends the worker and releases its memory. Nobody waits for its answers anymore. */
    close(): void {
        this.#isClosed = true;
        this.#worker.terminate();
        URL.revokeObjectURL(this.#url);
        this.#forget();
    }

    #receive(reply: Reply): void {
        const waiting = this.#waiting.get(reply.id);
        if (this.#waiting.delete(reply.id)) count(-1);
        if ('error' in reply) waiting?.reject(new Error(reply.error));
        else waiting?.resolve((typeof reply.answer === 'string' ? JSON.parse(reply.answer) : reply.answer) as never);
    }

    #fail(message: string): void {
        const waiting = [...this.#waiting.values()];
        this.#forget();
        for (const { reject } of waiting) reject(new Error(message));
    }

    #forget(): void {
        count(-this.#waiting.size);
        this.#waiting.clear();
    }
}

/** The most milliseconds between tasks. */
const LONGEST_REST = 100;

/** Runs one task at a time; of the tasks that arrive meanwhile, only the newest runs, since only its answer is still needed. */
export class Latest {
    #running: Promise<void> | null = null;
    #next: (() => Promise<void>) | null = null;

    /** With `rests`, it pauses as long as it has worked, for tasks that each frame requests: frames need processors, too. */
    constructor(private readonly rests = false) {}

    run(task: () => Promise<void>): void {
        this.#next = task;
        this.#running ??= this.#work();
    }

    /** Resolves when no task runs anymore. */
    async idle(): Promise<void> {
        await this.#running;
    }

    async #work(): Promise<void> {
        while (this.#next) {
            const task = this.#next;
            this.#next = null;
            const start = performance.now();
            await task();
            if (this.#next && this.rests) await rest(Math.min(performance.now() - start, LONGEST_REST));
        }
        this.#running = null;
    }
}
