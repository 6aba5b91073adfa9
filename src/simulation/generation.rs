//! How many tokens a model generates before a device is full.
//!
//! A KV cache that `torch.cat` extends grows by the same number of bytes with every token, and so do the attention
//! scores. One recording shows this: every token repeats the requests of the previous one, and each request grows at a
//! constant rate. So memviz simulates tokens that were not recorded, until a request fails.

use super::player::{Player, Setup};
use super::program::{Program, Step, StepKind};
use super::simulator::Simulator;
use crate::facts::device::Device;
use crate::facts::training::Category;
use crate::model::StackId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const ROUNDS: usize = 4;
/// A token frees blocks that at most this many earlier tokens allocated.
const BACK: usize = 2;
/// Approximate number of simulated steps: one or two seconds of work.
const STEPS: usize = 20_000_000;
/// Number of tokens that are prepared together.
const AT_ONCE: usize = 64;

const UNEVEN: &str =
    "the program does not make the same requests for each of the last tokens, with sizes that grow at the same rate";
const FEW: &str = "fewer than five consecutive tokens were recorded, too few to show how the cache grows";
const NOT_TOKENS: &str = "the cache size is not a multiple of what each token adds";
const NO_CACHE: &str = "no cache that grows with every token was found";
const SHORTER: &str = "the recordings have more tokens than that in the cache";
const FAR: &str = "that many tokens take too long to simulate";
const FULL: &str = "the device is full before the last recorded token";

/// A cache that grows with every token, and how far it can grow on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    pub tensors: usize,
    /// Bytes by which all of them grow together with a token.
    pub bytes_per_token: u64,
    /// Tokens in the cache at the end, the prompt's included.
    pub recorded: u64,
    pub reach: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This many, with any placement of segments by the driver.
    Tokens(u64),
    /// The first number of tokens was simulated and fits. With the second number, the cache alone fills the device.
    Between(u64, u64),
}

impl Reach {
    /// The tokens that fit, and the most that may.
    pub fn bounds(self) -> (u64, u64) {
        match self {
            Self::Tokens(tokens) => (tokens, tokens),
            Self::Between(least, most) => (least, most),
        }
    }
}

impl Generation {
    /// Finds a growing cache, and simulates further tokens until the device of the simulator is full, or says why this is
    /// impossible. `None` if no cache is seen to grow, requests failed, or no device is known.
    pub(super) fn of(device: &Device<'_>, simulator: &Simulator) -> Option<Result<Self, &'static str>> {
        let capacity = simulator.capacity.filter(|_| simulator.program.refusals.is_empty())?;
        let cache = Cache::of(device, &simulator.program)?;
        // A few tokens do not show that there is a cache at all.
        Some(Self::grown(device, simulator, &cache, capacity)).filter(|grown| *grown != Err(FEW))
    }

    /// Whether a program with a growing cache, simulated on a device, can serve requests until the cache has this many
    /// tokens. An error says why that cannot be simulated.
    pub(crate) fn serves(
        device: &Device<'_>,
        program: &Program,
        setup: &Setup,
        tokens: u64,
    ) -> Result<bool, &'static str> {
        let cache = Cache::of(device, program).ok_or(NO_CACHE)?;
        let round = Round::of(device, program, &cache)?;
        let more = tokens.checked_sub(round.recorded()?).ok_or(SHORTER)?;
        if more > (STEPS / round.steps.len().max(1)) as u64 {
            return Err(FAR);
        }
        Ok(matches!(round.simulate_on(program, setup, more), Simulated::Fits(_)))
    }

    fn grown(device: &Device<'_>, simulator: &Simulator, cache: &Cache, capacity: u64) -> Result<Self, &'static str> {
        let program = &simulator.program;
        let round = Round::of(device, program, cache)?;
        let recorded = round.recorded()?;
        let is_cache = |it: &&Repeated| it.step.kind == StepKind::Alloc && cache.has(it.step.allocation);
        let (tensors, bytes_per_token) = round
            .steps
            .iter()
            .filter(is_cache)
            .fold((0, 0u64), |(tensors, bytes), it| (tensors + 1, bytes.saturating_add(it.grows_by)));
        let most = capacity / bytes_per_token.max(1);
        let wanted = most.saturating_sub(recorded).saturating_add(2);
        let affordable = (STEPS / round.steps.len().max(1)) as u64;
        let setup = simulator.setup(&simulator.settings);
        let placements = simulator.placements(&simulator.settings);
        let simulated =
            |&placement| round.simulate_on(program, &Setup { placement, ..setup.clone() }, wanted.min(affordable));
        let reach = match placements.iter().map(simulated).min() {
            None | Some(Simulated::Before) => return Err(FULL),
            Some(Simulated::Full(more)) => Reach::Tokens(recorded + more - 1),
            Some(Simulated::Fits(more)) => Reach::Between(recorded + more - 1, most),
        };
        Ok(Self { tensors, bytes_per_token, recorded, reach })
    }
}

struct Cache {
    is_cache: Vec<bool>,
    /// The steps at which tokens start: the first request for each token on the cache's line.
    begins: Vec<usize>,
}

impl Cache {
    fn of(device: &Device<'_>, program: &Program) -> Option<Self> {
        let categories = device.categories();
        let recorded = device.history().allocations.len();
        let is_cache: Vec<bool> =
            (0..recorded).map(|index| categories.get(index).category == Category::KvCache).collect();
        let mut of_stack: BTreeMap<StackId, (u64, Vec<usize>)> = BTreeMap::new();
        for (place, step) in program.steps.iter().enumerate().filter(|(_, step)| step.kind == StepKind::Alloc) {
            if is_cache.get(step.allocation as usize) == Some(&true) {
                let (bytes, begins) = of_stack.entry(device.track.stack(step.entry)).or_default();
                if *bytes != step.bytes {
                    *bytes = step.bytes;
                    begins.push(place);
                }
            }
        }
        // The last token may be incomplete.
        let begins = of_stack.into_values().map(|(_, begins)| begins).min_by_key(|begins| begins.last().copied())?;
        Some(Self { is_cache, begins })
    }

    fn has(&self, allocation: u32) -> bool {
        self.is_cache.get(allocation as usize) == Some(&true)
    }
}

/// A step that every token repeats.
struct Repeated {
    /// The step of the last complete token.
    step: Step,
    /// The increase of a request's size from the previous token, in bytes.
    grows_by: u64,
    /// For a free: how many tokens ago the block was allocated, and by which step.
    made: Option<(usize, usize)>,
}

struct Round {
    steps: Vec<Repeated>,
    /// The step after the last whole one.
    end: usize,
    /// Allocations of the last tokens, by step; the last token last.
    recorded: Vec<Vec<u32>>,
}

/// The number of additional tokens that were simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Simulated {
    /// The recorded tokens do not fit.
    Before,
    /// The device is full after this many tokens.
    Full(u64),
    /// At least this many tokens fit.
    Fits(u64),
}

impl Round {
    /// The steps that the last complete tokens have in common, or why there are none.
    fn of(device: &Device<'_>, program: &Program, cache: &Cache) -> Result<Self, &'static str> {
        let begins = cache.begins.len().checked_sub(ROUNDS + 1).map(|first| &cache.begins[first..]).ok_or(FEW)?;
        let rounds: Vec<&[Step]> = begins.windows(2).map(|pair| &program.steps[pair[0]..pair[1]]).collect();
        let [.., before, last] = rounds[..] else { return Err(FEW) };
        if rounds.iter().any(|round| round.len() != last.len()) {
            return Err(UNEVEN);
        }
        // The round and step of each allocation.
        let mut places: HashMap<u32, (usize, usize)> = HashMap::new();
        for (number, round) in rounds.iter().enumerate() {
            let asks = round.iter().enumerate().filter(|(_, step)| step.kind == StepKind::Alloc);
            places.extend(asks.map(|(place, step)| (step.allocation, (number, place))));
        }
        let made = |number: usize, step: &Step| {
            let &(of, place) = places.get(&step.allocation)?;
            Some((number - of, place)).filter(|&(back, _)| back <= BACK)
        };
        let mut steps = Vec::with_capacity(last.len());
        for (place, &step) in last.iter().enumerate() {
            let here = rounds.iter().map(|round| &round[place]);
            let is_same = |other: &Step| (other.kind, other.pool) == (step.kind, step.pool);
            if !here.clone().all(is_same) {
                return Err(UNEVEN);
            }
            let (mut grows_by, mut freed) = (0, None);
            match step.kind {
                StepKind::Alloc => {
                    let stack = |step: &Step| device.track.stack(step.entry);
                    grows_by = step.bytes.checked_sub(before[place].bytes).ok_or(UNEVEN)?;
                    let sizes: Vec<u64> = here.clone().map(|step| step.bytes).collect();
                    let is_even = sizes.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(grows_by));
                    if !is_even || here.clone().any(|other| stack(other) != stack(&step)) {
                        return Err(UNEVEN);
                    }
                }
                StepKind::Free | StepKind::RequestFree | StepKind::CompleteFree => {
                    freed = made(ROUNDS - 1, &step);
                    if freed.is_none() || freed != made(ROUNDS - 2, &before[place]) {
                        return Err(UNEVEN);
                    }
                }
                StepKind::EmptyCache => {}
                StepKind::Refused | StepKind::ReleasePool => return Err(UNEVEN),
            }
            steps.push(Repeated { step, grows_by, made: freed });
        }
        let of_round = |round: &&[Step]| round.iter().map(|step| step.allocation).collect();
        Ok(Self { steps, end: begins[ROUNDS], recorded: rounds[ROUNDS - BACK..].iter().map(of_round).collect() })
    }

    /// Tokens in the cache at the end: the token after the last complete one has started.
    fn recorded(&self) -> Result<u64, &'static str> {
        let first = self.steps.first().ok_or(UNEVEN)?;
        if first.grows_by == 0 || !first.step.bytes.is_multiple_of(first.grows_by) {
            return Err(NOT_TOKENS);
        }
        Ok(first.step.bytes / first.grows_by + 1)
    }

    /// Simulates the recording up to the last complete token, and this many tokens after it.
    fn simulate_on(&self, program: &Program, setup: &Setup, tokens: u64) -> Simulated {
        let mut recorded = program.clone();
        Arc::make_mut(&mut recorded.steps).truncate(self.end);
        // New allocations are numbered after the recorded ones, in order: a token frees what was allocated shortly before.
        let turns = BACK + 1;
        let first = recorded.allocations;
        recorded.allocations = first + turns * self.steps.len();
        // Every token must be simulated, since the allocator never returns to an earlier state.
        recorded.repetition = None;
        let mut player = Player::new(&recorded, setup);
        player.run(&recorded, setup, &mut ());
        if player.outcome.fails_at.is_some() {
            return Simulated::Before;
        }
        let number = |round: u64, place: usize| {
            let back = self.recorded.len() as u64;
            match usize::try_from(round) {
                Ok(round) if round < self.recorded.len() => self.recorded[round][place],
                _ => (first + ((round - back) % turns as u64) as usize * self.steps.len() + place) as u32,
            }
        };
        let mut done = 0;
        while done < tokens {
            let rounds = (tokens - done).min(AT_ONCE as u64);
            let steps = Arc::make_mut(&mut recorded.steps);
            steps.clear();
            for round in done..done + rounds {
                let at = round + self.recorded.len() as u64;
                for (place, it) in self.steps.iter().enumerate() {
                    let (back, made) = it.made.unwrap_or((0, place));
                    let allocation = number(at - back as u64, made);
                    let bytes = it.step.bytes.saturating_add(it.grows_by.saturating_mul(round + 1));
                    steps.push(Step { allocation, bytes, ..it.step });
                }
            }
            player.done = 0;
            player.run(&recorded, setup, &mut ());
            if player.outcome.fails_at.is_some() {
                // The token whose request was refused is not complete.
                let whole = (player.done.saturating_sub(1) / self.steps.len()) as u64;
                return Simulated::Full(done + whole);
            }
            done += rounds;
        }
        Simulated::Fits(done)
    }
}
