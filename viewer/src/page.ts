/** The page with one or two recordings: all views, bound to one state. */

import type { Finding } from '../engine/engine.d.ts';
import { possibleAxis } from './aligned.ts';
import { BlocksView } from './blocks.ts';
import { Latest } from './client.ts';
import { Details } from './details.ts';
import { byId, element } from './dom.ts';
import { EventsView } from './events.ts';
import { showControls } from './controls.ts';
import { diverging } from './diverging.ts';
import { showFigures, showVerdict } from './figures.ts';
import { FindingsView } from './findings.ts';
import { FlameView } from './flame.ts';
import { name } from './format.ts';
import * as hash from './hash.ts';
import { listen as listenToKeys } from './keys.ts';
import { changeDevice, extent, isOneKind, isStill, Lane, opened } from './lane.ts';
import { Minimap } from './minimap.ts';
import { MissingView } from './missing.ts';
import { clamped } from './navigate.ts';
import { asked, begin, kept, type Opening } from './opening.ts';
import { common, type Recording } from './recording.ts';
import type { Sheet } from './save.ts';
import { SegmentsView } from './segments.ts';
import { type State, Store, type Tab, touches } from './state.ts';
import { StepsView } from './steps.ts';
import { Table } from './table.ts';
import { Timeline } from './timeline.ts';
import { Tip } from './tip.ts';
import { TracksView } from './tracked.ts';
import { lagsOf } from './tracks.ts';
import type { View } from './view.ts';
import { WhatIfView } from './whatif.ts';
import { Where } from './where.ts';

/** Views without a history show this. */
const OVER_TIME: Partial<Record<Tab, string>> = {
    blocks: 'memviz does not know when blocks were allocated and freed',
    events: 'there are no events',
    tracks: 'there is nothing to show over time',
    steps: 'memviz finds no steps',
    whatif: 'memviz does not know the requests of the program and cannot simulate them',
};

/** Views of files without segments, such as profiler traces, show this. */
const NO_SEGMENTS = 'This file does not record segments; a snapshot does: torch.cuda.memory._dump_snapshot() writes one.';
const NO_REQUESTS =
    'This file does not record the requests to the allocator, so memviz cannot simulate other settings or a changed program. ' +
    'A snapshot with a history does: call torch.cuda.memory._record_memory_history() before _dump_snapshot().';

/** Shows an error in its line. */
export function fail(error: unknown): void {
    const alarm = byId('alarm');
    alarm.textContent = name(error instanceof Error ? error.message : String(error), 2000);
    alarm.hidden = false;
}

export class Page {
    readonly views: View[];
    readonly lanes: readonly Lane[];
    readonly timelines: readonly Timeline[];
    readonly store: Store;

    readonly #findings: FindingsView;
    readonly #whatIf: WhatIfView;
    readonly #details: Details;
    readonly #where: Where;
    /** The findings of the first recording. */
    #found: readonly Finding[] = [];
    #search = new Latest();
    readonly #gone = new AbortController();
    /** The state that an empty hash represents. */
    readonly #start: State;

    private constructor(
        private readonly recordings: readonly Recording[],
        beside: readonly Recording[],
        initial: State,
        state: State,
        hasRange: boolean,
        readonly opening: Opening,
        turnTo: (recording: Recording) => void,
    ) {
        this.store = new Store(state, this.#gone.signal);
        this.lanes = recordings.map((recording, at) => new Lane(recording, this.store, at === 1));
        this.lanes[0].beside = beside;
        this.lanes[0].lags = lagsOf([recordings[0], ...beside]);
        const [from, to] = opened(this.lanes);
        this.#start = { ...initial, from, to };
        this.store.set(this.#range(state, hasRange));

        const tip = new Tip();
        showFigures(this.lanes);
        this.verdict();
        const go = {
            whole: () => {
                const [from, to] = extent(this.lanes);
                this.store.set({ from, to });
            },
            peak: () => {
                for (const lane of this.lanes) lane.at = lane.peak();
                this.#reveal(this.lanes[0]);
            },
        };
        showControls(this.lanes, go, fail);
        new Minimap(emptied('minimap'), this.lanes, fail);
        const hosts = this.lanes.map(() => element('div'));
        byId('timelines').replaceChildren(...hosts);
        this.timelines = this.lanes.map((lane, at) => new Timeline(hosts[at], this.lanes, lane, () => this.timelines, tip, fail));
        this.#where = new Where(byId('where'), this.lanes, fail);

        const table = new Table(this.lanes, fail);
        const turn = (device: number) => changeDevice(this.lanes, device).catch(fail);
        this.#findings = new FindingsView(this.lanes, (finding) => void this.#visit(finding).catch(fail), turn);
        this.#whatIf = new WhatIfView(this.lanes, turn, fail);
        const details = new Details(byId('details'), this.lanes, table, this.#findings.aside, fail);
        details.show();
        this.#details = details;
        const { hasSegments } = common(recordings);
        this.views = [
            table,
            new BlocksView(this.lanes, tip, fail),
            hasSegments ? new SegmentsView(this.lanes, tip, fail) : new MissingView('segments', 'Segments', NO_SEGMENTS),
            new FlameView(this.lanes, details, tip, fail),
            new EventsView(this.lanes, tip, fail),
            new TracksView(this.lanes, tip, turnTo, fail),
            new StepsView(this.lanes, tip, fail),
            hasSegments ? this.#whatIf : new MissingView('whatif', 'What if', NO_REQUESTS),
            this.#findings,
        ];
        const known = recordings.map((recording) => recording.known).filter((each) => each !== null);
        if (known.length === recordings.length) this.#fill(known);
        // The timeline asks first, once it has a size: its answer is the first picture.
        const begun = twoFrames().then(() => {
            if (!this.#gone.signal.aborted) this.#tabs();
        });
        this.#panels();
        listenToKeys(this, { ...go, fail });
        this.store.subscribe((now, changed) => {
            if (touches(changed, 'device', 'metric', 'by')) byId('alarm').hidden = true;
            if (changed.has('device')) {
                showFigures(this.lanes);
                this.verdict();
                this.#diverge();
            }
            if (touches(changed, 'tab', 'device')) this.#tabs();
            if (changed.has('selected')) this.#alone();
            if (touches(changed, 'query', 'device')) this.#find();
            if (opening.isLinked) this.#link(now);
        });
        if (opening.isLinked) addEventListener('hashchange', () => this.#follow(), { signal: this.#gone.signal });
        else history.replaceState(null, '', location.pathname + location.search);
        if (state.query !== '') this.#find();
        void this.#look(begun);
    }

    /** Shows recordings, as a link requests if there is one, or like the previous ones. */
    static async open(
        recordings: readonly Recording[],
        beside: readonly Recording[],
        opening: Opening,
        before: Page | null,
        turnTo: (recording: Recording) => void,
    ): Promise<Page> {
        const initial = begin(recordings);
        // Ranks that were recorded at the same time are shown side by side in time.
        if (beside.length > 0 && lagsOf([recordings[0], ...beside]).size > 0) initial.axis = 'time';
        const wanted = before ? kept(before.store.state, recordings) : hash.read(opening.link);
        const state = asked(wanted, initial, recordings);
        await Promise.all(recordings.map((each) => each.prepare(each.device(state.device).device)));
        await Promise.all(beside.flatMap((each) => each.figures.devices.map(({ device }) => each.prepare(device))));
        const axis = possibleAxis(state.axis, [...recordings, ...beside], state.device, initial.axis);
        const hasRange = wanted.from !== undefined && axis === state.axis;
        byId('welcome').hidden = true;
        byId('work').hidden = false;
        const more = beside.length > 0 ? ` and ${beside.length} more` : '';
        const names = recordings.map((each) => name(each.name, 60)).join(' and ') + more;
        byId('file').textContent = names;
        byId('file').title = recordings.map((each) => name(each.name, 1000)).join('\n');
        document.title = `${names} · memviz`;
        return new Page(recordings, beside, initial, { ...state, axis }, hasRange, opening, turnTo);
    }

    /** Another page replaces this one. */
    close(): void {
        this.#gone.abort();
        clearTimeout(this.#timer);
    }

    /** Lines of code have become available: stacks show them. */
    sourced(): void {
        this.#details.show();
    }

    /** Shows the verdict. */
    verdict(): void {
        showVerdict(this.lanes, this.#found);
    }

    /** The visible range: the range of a state, or the one that a page opens with. */
    #range(state: State, hasRange: boolean): { from: number; to: number } {
        if (hasRange) return clamped(state.from, state.to, extent(this.lanes));
        const [from, to] = opened(this.lanes);
        return { from, to };
    }

    /** Shows the state of the URL. */
    #follow(): void {
        const wanted = hash.read(location.hash);
        const state = asked(wanted, this.#start, this.recordings);
        const devices = this.recordings.map((each) => each.prepare(each.device(state.device).device));
        Promise.all(devices)
            .then(() => {
                const axis = possibleAxis(state.axis, [...this.recordings, ...this.lanes[0].beside], state.device, this.#start.axis);
                this.store.set({ ...state, axis, found: this.store.state.found });
                this.store.set(this.#range(state, wanted.from !== undefined && axis === state.axis));
            })
            .catch(fail);
    }

    /** The visible pictures, to save them. */
    sheet(): Sheet {
        const { tab, by, metric } = this.store.state;
        const view = this.views.find((each) => each.tab === tab);
        const title = this.lanes.map((lane) => `${lane.recording.name}, ${lane.device.name}`).join(' and ');
        return {
            title,
            subtitle: `${metric} by ${by}; ${byId('where').innerText.split('\n')[0]}`,
            drawn: [...(isStill(this.lanes) ? [] : this.timelines), ...(view?.drawn ?? [])],
        };
    }

    /** Moves the visible range to a lane's instant, unless it is visible. */
    #reveal(lane: Lane): void {
        const { from, to } = this.store.state;
        const x = lane.x(lane.at);
        if (x >= from && x < to) return;
        this.store.set(clamped(x - (to - from) / 2, x + (to - from) / 2, extent(this.lanes)));
    }

    /** Requests the allocations that match the search, and marks them everywhere. */
    #find(): void {
        this.#search.run(async () => {
            const { query } = this.store.state;
            for (const lane of this.lanes) {
                lane.found = null;
                lane.problem = null;
                if (query === '') continue;
                try {
                    lane.found = new Set(await lane.recording.client.ask('search', [lane.device.device, query]));
                } catch (error) {
                    lane.problem = error instanceof Error ? error.message : String(error);
                }
            }
            this.store.set({ found: this.store.state.found + 1 });
        });
    }

    /** Requests the findings after the first picture is drawn: they take longer than anything else. */
    async #look(begun: Promise<void>): Promise<void> {
        try {
            await begun;
            if (!isStill(this.lanes)) await Promise.all(this.timelines.map((each) => each.ready));
            performance.mark('memviz:ready');
            this.#diverge();
            if (!this.lanes.every(({ recording }) => recording.known))
                this.#fill(await Promise.all(this.lanes.map((lane) => lane.recording.findings())));
        } catch (error) {
            fail(error);
        }
    }

    #fill(findings: readonly (readonly Finding[])[]): void {
        this.#findings.fill(findings);
        this.#whatIf.fill(findings);
        this.#alone();
        [this.#found] = findings;
        this.verdict();
    }

    #diverging = new Latest();

    /** Requests where two recordings diverge, and shows it. */
    #diverge(): void {
        if (this.lanes.length < 2) return;
        this.#diverging.run(async () => {
            try {
                const found = isOneKind(this.lanes) ? await diverging(this.lanes) : null;
                this.lanes.forEach((lane, at) => {
                    lane.diverges = found?.instants[at] ?? null;
                });
                this.#where.diverge(found?.text ?? '');
                for (const each of this.timelines) each.surface.invalidate();
            } catch (error) {
                fail(error);
            }
        });
    }

    /** Goes to the instant of a finding. */
    async #visit({ device, instant, from, to }: Finding): Promise<void> {
        const [lane] = this.lanes;
        if (device !== lane.device.device) await changeDevice(this.lanes, device);
        if (instant !== null) lane.at = instant;
        if (from !== null && to !== null) {
            const [left, right] = [lane.x(from), lane.x(to)];
            const margin = 0.05 * (right - left);
            this.store.set(clamped(left - margin, right + margin, extent(this.lanes)));
        }
        this.#reveal(lane);
    }

    #timer = 0;

    /** Writes the state into the URL after the last change: browsers limit how often this is possible. */
    #link(state: Readonly<State>): void {
        clearTimeout(this.#timer);
        const link = hash.write(state, this.#start, this.opening.shown);
        this.#timer = window.setTimeout(() => history.replaceState(null, '', `#${link}`), 250);
    }

    /** Shows the chosen view. */
    #tabs(): void {
        this.#panels()?.show();
    }

    /** Shows the chosen view; returns `null` if it has nothing to request. */
    #panels(): View | null {
        const { tab } = this.store.state;
        const shown = this.views.find((view) => view.tab === tab) ?? this.views[0];
        const host = byId('tabs');
        if (host.childElementCount !== this.views.length || !this.views.every((view) => view.panel.isConnected)) {
            byId('panels').replaceChildren(...this.views.map((view) => view.panel));
            host.replaceChildren(...this.views.map((view) => this.#tab(view)));
        }
        this.views.forEach((view, at) => {
            const isShown = view === shown;
            const button = host.children[at] as HTMLElement;
            button.setAttribute('aria-selected', String(isShown));
            button.tabIndex = isShown ? 0 : -1;
            view.panel.hidden = !isShown;
        });
        this.#alone();
        return this.#explain(shown) ? null : shown;
    }

    /** Shows in a view why it is empty; returns whether it is. */
    #explain(view: View): boolean {
        const still = isStill(this.lanes);
        byId('work').classList.toggle('still', still);
        if (view instanceof MissingView) return true;
        const { tab, panel } = view;
        panel.querySelector(':scope > .why')?.remove();
        const isListed = tab === 'events' && this.lanes.some(({ device }) => device.entries > 0);
        const unknown = still && !isListed ? OVER_TIME[tab] : undefined;
        panel.classList.toggle('unknown', unknown !== undefined);
        if (unknown === undefined) return false;
        const because = this.lanes[0].device.entries === 0 ? 'No history was recorded' : 'The history has a single entry';
        const { hasSegments } = common(this.recordings);
        panel.append(element('div', { class: 'why' }, element('p', {}, `${because}: ${unknown}.`), ...(hasSegments ? [howToRecord()] : [])));
        return true;
    }

    /** Hides the part next to the views if it would repeat the view. */
    #alone(): void {
        const { tab, selected } = this.store.state;
        byId('work').classList.toggle('alone', selected === null && (this.#findings.isSilent || tab === 'findings' || tab === 'whatif'));
    }

    #tab(view: View): HTMLElement {
        const made = element(
            'button',
            { type: 'button', role: 'tab', id: `tab-${view.tab}`, 'aria-controls': `panel-${view.tab}` },
            view.title,
        );
        view.panel.id = `panel-${view.tab}`;
        view.panel.setAttribute('role', 'tabpanel');
        view.panel.setAttribute('aria-labelledby', made.id);
        made.addEventListener('click', () => this.store.set({ tab: view.tab }));
        made.addEventListener('keydown', (event) => {
            const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
            if (step === 0) return;
            event.stopPropagation();
            const next = this.views[(this.views.indexOf(view) + step + this.views.length) % this.views.length];
            this.store.set({ tab: next.tab });
            byId(`tab-${next.tab}`).focus();
        });
        return made;
    }
}

/** Resolves after everything has been laid out and drawn once. */
async function twoFrames(): Promise<void> {
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
}

/** How to make PyTorch keep a history. */
function howToRecord(): HTMLElement {
    const call = element('code', {}, 'torch.cuda.memory._record_memory_history()');
    return element('p', { class: 'note' }, 'To record one, call ', call, ' before the program allocates memory.');
}

function emptied(id: string): HTMLElement {
    const host = byId(id);
    host.replaceChildren();
    return host;
}
