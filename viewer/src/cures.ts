/** The cures of a device, and which of them are tried together. */

import type { Cure, Finding } from '../engine/engine.d.ts';
import { type State, type Store, tried } from './state.ts';

/** The finding with the cure at a place, as its own or as an alternative, and that cure. */
function at(found: readonly Finding[], device: number, place: number): { finding: Finding; cure: Cure } | null {
    for (const finding of found) {
        if (finding.device !== device) continue;
        const all = [finding.cure, ...finding.alternatives.map(({ cure }) => cure)];
        const cure = all.find((each) => each?.place === place);
        if (cure) return { finding, cure };
    }
    return null;
}

/** The places of the tried cures after one of them is switched on or off, without those that it cannot be combined with. */
export function switched(
    found: readonly Finding[],
    device: number,
    { place, combines }: Cure,
    state: Readonly<State>,
    isOn: boolean,
): string {
    const own = at(found, device, place);
    const goesWith = (other: number) => {
        const known = at(found, device, other);
        // One of several cures of one mistake is enough.
        return known !== null && known.finding !== own?.finding && combines && known.cure.combines;
    };
    const others = tried(state).filter((each) => each !== place && (!isOn || goesWith(each)));
    return (isOn ? [...others, place].sort((a, b) => a - b) : others).join();
}

/** Switches a cure on or off, on its own device. */
export async function tryCure(
    store: Store,
    found: readonly Finding[],
    device: number,
    cure: Cure,
    isOn: boolean,
    turn: (device: number) => Promise<void>,
): Promise<void> {
    if (store.state.device !== device) await turn(device);
    store.set({ cures: switched(found, device, cure, store.state, isOn) });
}
