/** Bytes by stack: live at an instant, in a range, or the difference of two instants. */

import type { Details } from './details.ts';
import { button, element } from './dom.ts';
import { OF } from './flamed.ts';
import { entry, name } from './format.ts';
import { Icicle } from './icicle.ts';
import type { Lane } from './lane.ts';
import { type FlameOf, FLAMES } from './state.ts';
import type { Tip } from './tip.ts';
import type { Drawn, View } from './view.ts';

export class FlameView implements View {
    readonly tab = 'flame';
    readonly title = 'Flame graph';
    readonly panel = element('div', { class: 'panel flames' });
    readonly #icicles: readonly Icicle[];
    readonly #hosts: readonly HTMLElement[];
    readonly #tools = element('div', { class: 'tools' });

    constructor(
        private readonly lanes: readonly Lane[],
        details: Details,
        tip: Tip,
        fail: (error: unknown) => void,
    ) {
        this.#hosts = lanes.map(() => element('div'));
        const [{ store }] = lanes;
        // The caption is updated before the graphs react to a change.
        store.subscribe((state) => {
            if (state.tab === 'flame') this.#update();
        });
        this.#icicles = lanes.map((lane, at) => new Icicle(this.#hosts[at], lane, lanes, () => this.#of, details, tip, fail));
        this.panel.append(this.#tools, element('div', { class: 'lanes' }, ...this.#hosts));
    }

    get drawn(): readonly Drawn[] {
        return this.#icicles.filter((_, at) => !this.#hosts[at].hidden);
    }

    /** The available graphs; the first one is shown unless another one was chosen. */
    get #choices(): readonly FlameOf[] {
        if (this.lanes.length > 1) return ['difference', 'live'];
        return this.lanes[0].range ? FLAMES : ['live'];
    }

    get #of(): FlameOf {
        const { flame } = this.lanes[0].store.state;
        const choices = this.#choices;
        return flame !== null && choices.includes(flame) ? flame : choices[0];
    }

    #update(): void {
        const of = this.#of;
        const isOne = of === 'difference' && this.lanes.length > 1;
        this.#hosts.forEach((host, at) => {
            host.hidden = isOne && at > 0;
        });
        const choices = this.#choices;
        const { around } = this.lanes[0].store.state;
        const isAround = around !== '' && of !== 'difference';
        this.#tools.hidden = choices.length === 1 && !isAround;
        const focused = this.#tools.contains(document.activeElement) && (document.activeElement as HTMLElement).dataset.of;
        const buttons = choices.map((choice) => {
            const { button: words, title } = OF[choice];
            const isBeside = choice === 'live' && this.lanes.length > 1;
            const made = button(isBeside ? 'side by side' : words, isBeside ? 'Each recording at its cursor' : title, () =>
                this.lanes[0].store.set({ flame: choice }),
            );
            made.dataset.of = choice;
            made.setAttribute('aria-pressed', String(choice === of));
            return made;
        });
        const group = element('span', { class: 'group', role: 'group', 'aria-label': 'What the flame graph shows' }, ...buttons);
        this.#tools.replaceChildren(
            ...(choices.length > 1 ? [group] : []),
            ...(of === 'difference' ? [this.#key()] : []),
            ...(isAround ? this.#sandwich(around) : []),
        );
        buttons.find((each) => each.dataset.of === focused)?.focus();
    }

    /** The function whose callers and callees are shown, and the way back. */
    #sandwich(around: string): HTMLElement[] {
        const back = button('all functions', 'Back to the flame graph of all functions', () =>
            this.lanes[0].store.set({ around: '' }),
        );
        const what = element('strong', {}, name(around, 80));
        return [element('span', { class: 'note' }, what, ': callers above, callees below'), back];
    }

    /** How to read a difference. */
    #key(): HTMLElement {
        const { range } = this.lanes[0];
        const [from, to] = range ? range.map(entry) : this.lanes.map((lane) => `${lane.letter} at ${entry(lane.at)}`);
        return element(
            'span',
            { class: 'note' },
            `${from} to ${to}: `,
            element('span', { class: 'grew' }, 'red'),
            ' grew, ',
            element('span', { class: 'shrank' }, 'blue'),
            ` shrank, gray did not change; widths are the larger of both, stack by stack${range ? '' : '; frames by function'}`,
        );
    }

    show(): void {
        this.#update();
        for (const each of this.#icicles) {
            each.fetch();
            each.surface.invalidate();
        }
    }
}
