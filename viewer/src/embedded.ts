/** What the page carries with it: the engine and, perhaps, a recording, as Ascii85 in elements that are no scripts. */

/** What each character stands for; 255 for none. Nothing in the text may look like a tag, so `v` is what `<` is elsewhere. */
const DIGITS = (() => {
    const digits = new Uint8Array(128).fill(255);
    for (let digit = 0; digit < 85; digit++) digits[33 + digit] = digit;
    digits['v'.charCodeAt(0)] = digits['<'.charCodeAt(0)];
    digits['<'.charCodeAt(0)] = 255;
    return digits;
})();

/** Bytes of Ascii85 text: five digits for four bytes; white space is skipped. */
export function decode(text: string): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(Math.ceil((text.length * 4) / 5) + 4);
    let [length, number, count] = [0, 0, 0];
    const put = () => {
        bytes[length] = number >>> 24;
        bytes[length + 1] = number >>> 16;
        bytes[length + 2] = number >>> 8;
        bytes[length + 3] = number;
        length += 4;
    };
    for (let at = 0; at < text.length; at++) {
        const digit = DIGITS[text.charCodeAt(at) & 127];
        if (digit === 255) continue;
        number = number * 85 + digit;
        if (++count < 5) continue;
        put();
        [number, count] = [0, 0];
    }
    if (count === 0) return bytes.subarray(0, length);
    // The last group may be shorter.
    for (let missing = count; missing < 5; missing++) number = number * 85 + 84;
    put();
    return bytes.subarray(0, length - 5 + count);
}

/** What the page carries: bytes, and for a recording its name, how to read it, samples of the device, and what to show first, as a link says it. */
export interface Carried {
    bytes: Blob;
    name: string;
    options: string;
    samples: string;
    show: string;
}

/** What an element holds, which is emptied: its text takes more memory than its bytes. `null` where it is empty. */
export function take(id: string): Carried | null {
    const holder = document.getElementById(id);
    const text = holder?.textContent ?? '';
    if (!holder || text.trim() === '') return null;
    holder.textContent = '';
    const { name = '', options = '', samples = '', show = '' } = holder.dataset;
    return { bytes: new Blob([decode(text)]), name, options, samples, show };
}
