/** The colors of the pictures, in a light and a dark theme. The colors of groups come from the engine. */

/** A color in both themes, as `#RRGGBB`. */
export interface Color {
    light: string;
    dark: string;
}

export type Theme = 'light' | 'dark';

const color = (light: string, dark: string): Color => ({ light, dark });

export const BACKGROUND = color('#FFFFFF', '#0D1117');
export const TEXT = color('#1F2328', '#E6EDF3');
export const MUTED = color('#59636E', '#9DA7B3');
export const GRID = color('#D1D9E0', '#3D444D');
export const ALARM = color('#CF222E', '#FF7B72');
export const RIBBONS: readonly Color[] = [color('#DDE4EB', '#2B323B'), color('#C8D1DA', '#424A54')];
export const OTHER = color('#8B949E', '#6E7783');
export const FREE = color('#F6F8FA', '#161B22');
/** Selected or found by the search. */
export const ACCENT = color('#0969DA', '#58A6FF');

/** Red, green and blue of `#RRGGBB`. */
export function channels(hex: string): [number, number, number] {
    const value = Number.parseInt(hex.slice(1), 16);
    return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** Mixes a color into another one: shapes that are not searched for are dimmed. */
export function mix(front: string, back: string, part: number): string {
    const [a, b] = [channels(front), channels(back)];
    const hex = a.map((value, at) =>
        Math.round(value * part + b[at] * (1 - part))
            .toString(16)
            .padStart(2, '0'),
    );
    return `#${hex.join('')}`;
}

/** Black or white, whichever has the higher contrast on a color as WCAG 2 defines it. */
export function onTop(hex: string): string {
    const [red, green, blue] = channels(hex).map((channel) => {
        const value = channel / 255;
        return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    // Both contrasts are equal where (luminance + 0.05)² = 0.05 · 1.05.
    return luminance + 0.05 > Math.sqrt(0.0525) ? '#000000' : '#FFFFFF';
}
