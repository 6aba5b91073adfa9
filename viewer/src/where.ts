/** The instant that all views speak of, in words, and ways to others. */

import { Latest } from './client.ts';
import { button, element } from './dom.ts';
import { bytes, duration, entryOf, name } from './format.ts';
import type { Lane } from './lane.ts';

export class Where {
    #latest = new Latest();

    constructor(
        private readonly host: HTMLElement,
        private readonly lanes: readonly Lane[],
        private readonly fail: (error: unknown) => void,
    ) {
        lanes[0].store.subscribe((_, changed) => {
            if (['device', 'metric', 'at', 'at2', 'mark'].some((key) => changed.has(key as 'at'))) this.show();
        });
        this.show();
    }

    show(): void {
        this.#latest.run(async () => {
            try {
                const texts = await Promise.all(this.lanes.map((lane) => this.#text(lane, lane.at)));
                const [first] = this.lanes;
                if (first.mark !== null) texts.push(await this.#text(first, first.mark));
                const names = this.lanes.length > 1 ? ['A', 'B'] : ['at', 'marked'];
                const lines = texts.map((text, at) =>
                    element('span', {}, element('strong', {}, `${names[at]} `), text),
                );
                this.host.replaceChildren(...lines, this.#buttons());
            } catch (error) {
                this.fail(error);
            }
        });
    }

    async #text(lane: Lane, instant: number): Promise<string> {
        const { device, recording, store } = lane;
        const { metric } = store.state;
        const at = async (of: typeof metric) =>
            (await recording.client.ask('curve', [device.device, of, 'entry', instant, instant + 1, 1])).values[0];
        const [held, reserved] = await Promise.all([at(metric), at('reserved')]);
        const parts = [entryOf(instant, device.entries)];
        if (recording.figures.has_times) parts.push(`after ${duration(recording.x(device.device, instant, 'time'))}`);
        const open = recording.open(device.device, instant);
        if (open.length > 0) parts.push(`in ${name(open.join(' / '), 80)}`);
        parts.push(`${bytes(held)} ${metric}`);
        if (recording.figures.has_segments && metric !== 'reserved') parts.push(`${bytes(reserved)} reserved`);
        return parts.join(' · ');
    }

    #buttons(): HTMLElement {
        const [first, second] = this.lanes;
        const { store } = first;
        const made: HTMLElement[] = [];
        if (second || first.at !== first.peak()) {
            made.push(
                button(second ? 'both peaks' : 'peak', 'Look at the peak', () => {
                    for (const lane of this.lanes) lane.at = lane.peak();
                }),
            );
        }
        const [oom] = first.device.ooms;
        if (!second && oom && first.at !== oom.instant)
            made.push(button('OOM', 'Look at the first failed request', () => store.set({ at: oom.instant })));
        if (!second && first.mark === null) {
            made.push(
                button('compare with…', 'Keep this instant, and see what grew from it to where you go next (m)', () =>
                    store.set({ mark: first.at }),
                ),
            );
        }
        if (first.mark !== null)
            made.push(button('end the comparison', 'Look at one instant again (m)', () => store.set({ mark: null })));
        return element('span', { class: 'buttons' }, ...made);
    }
}
