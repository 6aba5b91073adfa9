/** The cures of a device: which of them are tried together. */

import type { Finding } from '../engine/engine.d.ts';
import { type State, type Store, tried } from './state.ts';

/** The places of the cures that are tried once one of them is switched on or off, without those that it cannot be tried with. */
export function switched(found: readonly Finding[], finding: Finding, state: Readonly<State>, isOn: boolean): string {
    const { cure, device } = finding;
    if (!cure) return state.cures;
    const combines = (place: number) => {
        const other = found.find((each) => each.device === device && each.cure?.place === place);
        return cure.combines && (other?.cure?.combines ?? false);
    };
    const others = tried(state).filter((place) => place !== cure.place && (!isOn || combines(place)));
    return (isOn ? [...others, cure.place].sort((a, b) => a - b) : others).join();
}

/** Switches a cure on or off, on its own device. */
export async function tryCure(
    store: Store,
    found: readonly Finding[],
    finding: Finding,
    isOn: boolean,
    turn: (device: number) => Promise<void>,
): Promise<void> {
    if (store.state.device !== finding.device) await turn(finding.device);
    store.set({ cures: switched(found, finding, store.state, isOn) });
}
