/** The source text of a worker, bundled. */
declare module 'worker:*' {
    const source: string;
    export default source;
}

/** Reads at once; within workers only. */
declare class FileReaderSync {
    readAsArrayBuffer(blob: Blob): ArrayBuffer;
}
