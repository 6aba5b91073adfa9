/** The source text of a worker, bundled. */
declare module 'worker:*' {
    const source: string;
    export default source;
}

/** Reads synchronously; only in workers. */
declare class FileReaderSync {
    readAsArrayBuffer(blob: Blob): ArrayBuffer;
}
