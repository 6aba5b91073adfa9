/** The instant that all views speak of, in words, and ways to others. */

import type { Metric } from '../engine/engine.d.ts';
import { Latest } from './client.ts';
import { button, element } from './dom.ts';
import { bound, bytes, duration, entryOf, name } from './format.ts';
import { type Lane, letters } from './lane.ts';
import { touches } from './state.ts';

export class Where {
    #latest = new Latest();
    /** Says on the buttons what they do now. */
    #update = (): void => {};
    readonly #texts = element('div', { class: 'texts', 'aria-live': 'polite' });

    constructor(
        host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly fail: (error: unknown) => void,
    ) {
        lanes[0].store.subscribe((_, changed) => {
            if (touches(changed, 'device', 'metric', 'at', 'at2', 'mark')) this.show();
        });
        host.replaceChildren(this.#texts, this.#buttons());
        this.show();
    }

    show(): void {
        this.#update();
        this.#latest.run(async () => {
            try {
                const texts = await Promise.all(this.lanes.map((lane) => this.#text(lane, lane.at)));
                const [first] = this.lanes;
                if (first.mark !== null) texts.push(await this.#text(first, first.mark));
                const names = this.lanes.length > 1 ? letters(this.lanes) : ['at', 'marked'];
                const lines = texts.map((text, at) =>
                    element('span', {}, element('strong', {}, `${names[at]} `), text),
                );
                this.#texts.replaceChildren(...lines);
            } catch (error) {
                this.fail(error);
            }
        });
    }

    async #text(lane: Lane, instant: number): Promise<string> {
        const { device, recording, store } = lane;
        const { metric } = store.state;
        const value = async (of: Metric) =>
            bound(device.bounds[of]) + bytes(await recording.value(device.device, of, instant));
        const [held, reserved] = await Promise.all([value(metric), value('reserved')]);
        const parts = [entryOf(instant, device.entries)];
        if (recording.figures.has_times) parts.push(`after ${duration(recording.x(device.device, instant, 'time'))}`);
        const open = recording.open(device.device, instant);
        if (open.length > 0) parts.push(`in ${name(open.join(' / '), 80)}`);
        parts.push(`${held} ${metric}`);
        if (device.has_reserved && metric !== 'reserved') parts.push(`${reserved} reserved`);
        return parts.join(' · ');
    }

    /** Ways to other instants: made once, so that the focus stays on them. */
    #buttons(): HTMLElement {
        const [first, second] = this.lanes;
        const peak = button(second ? 'both peaks' : 'peak', 'Look at the peak', () => {
            for (const lane of this.lanes) lane.at = lane.peak();
        });
        if (second) return element('span', { class: 'buttons' }, peak);
        const oom = button('OOM', 'Look at the first failed request', () => {
            first.at = first.device.ooms[0].instant;
        });
        const mark = button('', '', () => {
            first.store.set({ mark: first.mark === null ? first.at : null });
        });
        this.#update = () => {
            oom.hidden = first.device.ooms.length === 0;
            const isMarked = first.mark !== null;
            mark.textContent = isMarked ? 'end the comparison' : 'compare with…';
            mark.title = isMarked
                ? 'Return to a single instant (m)'
                : 'Mark this instant, then move to another to see what grew in between (m)';
        };
        return element('span', { class: 'buttons' }, peak, oom, mark);
    }
}
