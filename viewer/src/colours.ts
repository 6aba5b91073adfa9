/** The colours of the pictures, in a light and a dark theme. Those of groups come from the engine. */

/** A colour in both themes, as `#RRGGBB`. */
export interface Colour {
    light: string;
    dark: string;
}

export type Theme = 'light' | 'dark';

const colour = (light: string, dark: string): Colour => ({ light, dark });

export const BACKGROUND = colour('#FFFFFF', '#0D1117');
export const TEXT = colour('#1F2328', '#E6EDF3');
export const MUTED = colour('#59636E', '#9DA7B3');
export const GRID = colour('#D1D9E0', '#3D444D');
export const ALARM = colour('#CF222E', '#FF7B72');
export const RIBBONS: readonly Colour[] = [colour('#DDE4EB', '#2B323B'), colour('#C8D1DA', '#424A54')];
export const OTHER = colour('#8B949E', '#6E7783');
export const FREE = colour('#F6F8FA', '#161B22');
/** What the reader has chosen or searched. */
export const ACCENT = colour('#0969DA', '#58A6FF');

/** Red, green and blue of `#RRGGBB`. */
export function channels(hex: string): [number, number, number] {
    const value = Number.parseInt(hex.slice(1), 16);
    return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** A colour mixed into another one: what is not meant steps back. */
export function mix(front: string, back: string, part: number): string {
    const [a, b] = [channels(front), channels(back)];
    const hex = a.map((value, at) =>
        Math.round(value * part + b[at] * (1 - part))
            .toString(16)
            .padStart(2, '0'),
    );
    return `#${hex.join('')}`;
}

/** Black or white, whichever has the higher contrast on a colour as WCAG 2 defines it. */
export function onTop(hex: string): string {
    const [red, green, blue] = channels(hex).map((channel) => {
        const value = channel / 255;
        return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    // Both contrasts are equal where (luminance + 0.05)² = 0.05 · 1.05.
    return luminance + 0.05 > Math.sqrt(0.0525) ? '#000000' : '#FFFFFF';
}
