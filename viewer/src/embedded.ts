/** What the page carries with it: the engine and, perhaps, a recording, as base64 in elements that are no scripts. */

/** What each character of base64 stands for; 255 for none. */
const VALUES = (() => {
    const values = new Uint8Array(128).fill(255);
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
    for (let at = 0; at < 64; at++) values[alphabet.charCodeAt(at)] = at;
    return values;
})();

/** Bytes of base64 text; white space and padding are skipped. */
export function decode(text: string): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(Math.ceil((text.length * 3) / 4));
    let [length, bits, count] = [0, 0, 0];
    for (let at = 0; at < text.length; at++) {
        const value = VALUES[text.charCodeAt(at) & 127];
        if (value === 255) continue;
        bits = ((bits << 6) | value) & 0xffffff;
        count += 6;
        if (count >= 8) {
            count -= 8;
            bytes[length++] = (bits >> count) & 255;
        }
    }
    return bytes.subarray(0, length);
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
