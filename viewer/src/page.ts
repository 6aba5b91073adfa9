/** The page with one or two recordings: all views, bound to one state. */

import type { DeviceFigures, Finding } from '../engine/engine.d.ts';
import { BlocksView } from './blocks.ts';
import { Latest } from './client.ts';
import { Details } from './details.ts';
import { byId, element } from './dom.ts';
import { answerable, showControls } from './controls.ts';
import { showFigures, showVerdict } from './figures.ts';
import { FindingsView } from './findings.ts';
import { FlameView } from './flame.ts';
import { name } from './format.ts';
import * as hash from './hash.ts';
import { listen as listenToKeys } from './keys.ts';
import { extent, Lane } from './lane.ts';
import { Minimap } from './minimap.ts';
import { clamped } from './navigate.ts';
import { common, type Recording } from './recording.ts';
import type { Sheet } from './save.ts';
import { SegmentsView } from './segments.ts';
import { type State, Store } from './state.ts';
import { Table } from './table.ts';
import { Timeline } from './timeline.ts';
import { Tip } from './tip.ts';
import type { View } from './view.ts';
import { Where } from './where.ts';

/** Shows an error in its line. */
export function fail(error: unknown): void {
    const alarm = byId('alarm');
    alarm.textContent = name(error instanceof Error ? error.message : String(error), 2000);
    alarm.hidden = false;
}

/** The device to begin with: of those that are no host the one that holds most. */
function mainDevice({ figures: { devices } }: Recording): DeviceFigures {
    const held = (device: DeviceFigures) => (device.device < 0 ? -1 : device.peak.allocated.bytes);
    return devices.reduce((most, device) => (held(device) > held(most) ? device : most));
}

/** The state at the beginning: all of a device, at its peak. */
function begin(recordings: readonly Recording[]): State {
    const [first, second] = recordings;
    const device = mainDevice(first);
    const { by } = common(recordings);
    return {
        device: device.device,
        axis: 'entry',
        from: 0,
        to: 1,
        metric: 'allocated',
        by: by.includes('site') ? 'site' : by[0],
        at: device.peak.allocated.instant,
        at2: second ? second.device(device.device).peak.allocated.instant : 0,
        mark: null,
        tab: 'table',
        selected: null,
        query: '',
        found: 0,
        fit: false,
    };
}

/** What a link asks for, as far as the file has it. */
function asked(wanted: Partial<State>, initial: State, recordings: readonly Recording[]): State {
    const [{ figures }] = recordings;
    const { by, hasTimes, hasSegments } = common(recordings);
    const state = { ...initial, ...wanted };
    if (!figures.devices.some((each) => each.device === state.device)) state.device = initial.device;
    if (!by.includes(state.by)) state.by = initial.by;
    if (!hasTimes) state.axis = 'entry';
    if (wanted.at === undefined && state.device !== initial.device)
        state.at = recordings[0].device(state.device).peak.allocated.instant;
    return answerable(state, hasSegments);
}

export class Page {
    readonly views: View[];
    readonly lanes: readonly Lane[];
    readonly timelines: readonly Timeline[];
    readonly store: Store;

    readonly #findings: FindingsView;
    /** What was found in the first recording. */
    #found: readonly Finding[] = [];
    #search = new Latest();

    private constructor(recordings: readonly Recording[], initial: State, state: State, isLinked: boolean) {
        this.store = new Store(state);
        this.lanes = recordings.map((recording, at) => new Lane(recording, this.store, at === 1));
        const whole = extent(this.lanes);
        const start = { ...initial, from: whole[0], to: whole[1] };
        const range = isLinked ? clamped(state.from, state.to, whole) : { from: whole[0], to: whole[1] };
        this.store.set(range);

        const tip = new Tip();
        showFigures(this.lanes);
        showVerdict(this.lanes, []);
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
        showControls(this.lanes, go);
        new Minimap(emptied('minimap'), this.lanes, fail);
        const hosts = this.lanes.map(() => element('div'));
        byId('timelines').replaceChildren(...hosts);
        this.timelines = this.lanes.map((lane, at) => new Timeline(hosts[at], this.lanes, lane, tip, fail));
        new Where(byId('where'), this.lanes, fail);

        const table = new Table(this.lanes, fail);
        this.#findings = new FindingsView(this.lanes, (finding) => this.#visit(finding));
        const details = new Details(byId('details'), this.lanes, table, this.#findings.aside, fail);
        details.show();
        const { hasSegments } = common(recordings);
        this.views = [
            table,
            new BlocksView(this.lanes, tip, fail),
            ...(hasSegments ? [new SegmentsView(this.lanes, tip, fail)] : []),
            new FlameView(this.lanes, details, tip, fail),
            this.#findings,
        ];
        this.#tabs();
        listenToKeys(this, go);
        this.store.subscribe((now, changed) => {
            if (['device', 'metric', 'by'].some((key) => changed.has(key as 'by'))) byId('alarm').hidden = true;
            if (changed.has('device')) {
                showFigures(this.lanes);
                showVerdict(this.lanes, this.#found);
            }
            if (changed.has('tab')) this.#tabs();
            if (changed.has('query') || changed.has('device')) this.#find();
            this.#link(now, start);
        });
        if (state.query !== '') this.#find();
        void this.#look();
    }

    /** Shows recordings, as a link says if there is one. */
    static async open(recordings: readonly Recording[], link: string): Promise<Page> {
        const initial = begin(recordings);
        const wanted = hash.read(link);
        const state = asked(wanted, initial, recordings);
        await Promise.all(recordings.map((each) => each.prepare(each.device(state.device).device)));
        byId('welcome').hidden = true;
        byId('work').hidden = false;
        const names = recordings.map((each) => name(each.name, 60)).join(' and ');
        byId('file').textContent = names;
        byId('file').title = recordings.map((each) => name(each.name, 1000)).join('\n');
        document.title = `${names} · memviz`;
        return new Page(recordings, initial, state, wanted.from !== undefined);
    }

    /** What is seen, to keep as a picture. */
    sheet(): Sheet {
        const { tab, by, metric } = this.store.state;
        const view = this.views.find((each) => each.tab === tab);
        const title = this.lanes.map((lane) => `${lane.recording.name}, ${lane.device.name}`).join(' and ');
        return {
            title,
            subtitle: `${metric} by ${by}; ${byId('where').innerText.split('\n')[0]}`,
            drawn: [...this.timelines, ...(view?.drawn ?? [])],
        };
    }

    /** Moves what is seen to where a lane's instant is, unless it is in sight. */
    #reveal(lane: Lane): void {
        const { from, to } = this.store.state;
        const x = lane.x(lane.at);
        if (x >= from && x < to) return;
        this.store.set(clamped(x - (to - from) / 2, x + (to - from) / 2, extent(this.lanes)));
    }

    /** Asks which allocations match what is searched for, and shows them everywhere. */
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

    /** Asks for the findings once the first picture stands: they take longer than anything else. */
    async #look(): Promise<void> {
        try {
            await Promise.all(this.timelines.map((each) => each.ready));
            performance.mark('memviz:ready');
            const findings = await Promise.all(this.lanes.map((lane) => lane.recording.findings()));
            this.#findings.fill(findings);
            [this.#found] = findings;
            showVerdict(this.lanes, this.#found);
        } catch (error) {
            fail(error);
        }
    }

    /** Goes to where a finding is. */
    #visit(finding: Finding): void {
        const [lane] = this.lanes;
        const { device } = finding;
        void lane.recording.prepare(device).then(() => {
            if (device !== this.store.state.device) {
                this.store.set({ device, selected: null, mark: null });
                const [from, to] = extent(this.lanes);
                this.store.set({ from, to });
            }
            if (finding.instant !== null) lane.at = finding.instant;
            if (finding.from !== null && finding.to !== null) {
                const [left, right] = [lane.x(finding.from), lane.x(finding.to)];
                const margin = 0.05 * (right - left);
                this.store.set(clamped(left - margin, right + margin, extent(this.lanes)));
            }
            this.#reveal(lane);
        });
    }

    #timer = 0;

    /** Writes the state into the URL, once things are at rest: browsers limit how often that is done. */
    #link(state: Readonly<State>, start: State): void {
        clearTimeout(this.#timer);
        this.#timer = window.setTimeout(() => history.replaceState(null, '', `#${hash.write(state, start)}`), 250);
    }

    #tabs(): void {
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
        shown.show();
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

function emptied(id: string): HTMLElement {
    const host = byId(id);
    host.replaceChildren();
    return host;
}
