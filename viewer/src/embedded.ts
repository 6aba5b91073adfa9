/** Data inside the page: the engine and, if there is one, a recording, as Ascii85 in elements that are not scripts. */

/** The digit of each character; 255 for none. The text must not look like a tag, so `v` replaces `<`. */
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

/**
 * Embedded bytes; for a recording also its name, how to read it, samples of the device, its findings, and what to show first, as
 * in a link.
 */
export interface Carried {
    bytes: Blob;
    name: string;
    options: string;
    samples: string;
    findings: string;
    show: string;
}

/** The content of an element, which is then emptied: its text takes more memory than its bytes. `null` if it is empty. */
export function take(id: string): Carried | null {
    const holder = document.getElementById(id);
    const text = holder?.textContent ?? '';
    if (!holder || text.trim() === '') return null;
    holder.textContent = '';
    const { name = '', options = '', samples = '', findings = '', show = '' } = holder.dataset;
    return { bytes: new Blob([decode(text)]), name, options, samples, findings, show };
}
