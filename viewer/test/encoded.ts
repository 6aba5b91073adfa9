/** Bytes as the page carries them: Ascii85 with `v` for `<`. */

export function encoded(bytes: Uint8Array): string {
    const text: string[] = [];
    for (let at = 0; at < bytes.length; at += 4) {
        let number = 0;
        for (let place = at; place < at + 4; place++) number = number * 256 + (bytes[place] ?? 0);
        let group = '';
        for (let digit = 0; digit < 5; digit++) {
            group = String.fromCharCode(33 + (number % 85)) + group;
            number = Math.floor(number / 85);
        }
        text.push(group.slice(0, bytes.length - at + 1));
    }
    return text.join('').replaceAll('<', 'v');
}
