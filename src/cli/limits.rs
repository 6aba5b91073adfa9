//! What a run may cost at most, in memory and in processor time: no file of a stranger takes a machine down.
//!
//! Reading keeps to [`crate::input::Limits`], which names what is too much. Behind that stands the system, which knows what
//! all of the process has: memory in use, memory that it refuses, and time that it says is spent, end the run with exit code 2.

use super::outcome::Outcome;
use crate::model::bytes::Bytes;

/// Memory of a run, unless `--max-memory` says otherwise.
pub const MEMORY: &str = "4GiB";
/// The least that may be requested: threads and tables take some before anything is read.
const LEAST_MEMORY: u64 = 64 << 20;

/// Reads the value of `--max-memory`.
///
/// # Errors
/// When it is no size, or too little for any file.
pub fn parse_memory(text: &str) -> Result<Bytes, String> {
    let bytes = Bytes::of_device(text).map_err(|error| error.to_string())?;
    let is_enough = bytes.0 >= LEAST_MEMORY;
    is_enough.then_some(bytes).ok_or_else(|| format!("expected at least {}, found {bytes}", Bytes(LEAST_MEMORY)))
}

/// What a run may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes.
    pub memory: u64,
    /// Whether processor time is limited.
    pub work: bool,
}

#[cfg(unix)]
mod system {
    use super::{Bytes, Limits, Outcome};
    use crate::cli::outcome::complain;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use signal_hook::consts::{SIGABRT, SIGXCPU};
    use signal_hook::iterator::Signals;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    /// Processor time that any run has, in seconds: enough for 20 MB. Each second more takes this many bytes of input.
    const BASE_SECONDS: u64 = 10;
    const BYTES_PER_SECOND: u64 = 2_000_000;

    /// Bytes of the inputs opened so far.
    static GRANTED: AtomicU64 = AtomicU64::new(0);
    static IS_WORK_LIMITED: AtomicBool = AtomicBool::new(false);
    static MEMORY_LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

    /// How often to look.
    const INTERVAL: Duration = Duration::from_millis(10);

    impl Limits {
        /// Has the system keep to them from here on. A limit that the process already has and that is lower stays.
        pub fn enforce(self) {
            // What aborts has said why on one line: memory was refused. A core dump would help nobody.
            let _ = signal_hook::flag::register_conditional_shutdown(
                SIGABRT,
                Outcome::Failed as i32,
                Arc::new(AtomicBool::new(true)),
            );
            // What is requested is touched bit by bit, so that the watch, which counts what is touched, mostly comes first.
            lower(Resource::Data, self.memory.saturating_add(self.memory / 2));
            MEMORY_LIMIT.store(self.memory, Ordering::Relaxed);
            if watch().is_ok() && self.work {
                IS_WORK_LIMITED.store(true, Ordering::Relaxed);
                lower(Resource::Cpu, BASE_SECONDS);
            }
        }
    }

    /// Allows the work that an input of this many bytes takes.
    pub fn grant(bytes: u64) {
        let granted = GRANTED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if IS_WORK_LIMITED.load(Ordering::Relaxed) {
            set(Resource::Cpu, seconds(granted));
        }
    }

    /// Limit on CPU time in seconds, for an input of this many bytes.
    fn seconds(granted: u64) -> u64 {
        BASE_SECONDS.max(granted / BYTES_PER_SECOND)
    }

    /// Lifts all limits: for other programs, and for what runs until somebody ends it.
    pub fn lift() {
        IS_WORK_LIMITED.store(false, Ordering::Relaxed);
        MEMORY_LIMIT.store(u64::MAX, Ordering::Relaxed);
        for resource in [Resource::Cpu, Resource::Data] {
            set(resource, u64::MAX);
        }
    }

    /// Looks, on a thread of its own, whether the system says that the time is spent, and how much memory is in use.
    fn watch() -> std::io::Result<()> {
        let mut signals = Signals::new([SIGXCPU])?;
        std::thread::Builder::new().spawn(move || {
            loop {
                std::thread::sleep(INTERVAL);
                if signals.pending().next().is_some() && IS_WORK_LIMITED.load(Ordering::Relaxed) {
                    let granted = GRANTED.load(Ordering::Relaxed);
                    let (seconds, input) = (seconds(granted), Bytes(granted));
                    end(&format!(
                        "expected to be done in {seconds} s of CPU time for {input} of input, which is more than \
                         recordings take; --no-limit goes on"
                    ));
                }
                let limit = MEMORY_LIMIT.load(Ordering::Relaxed);
                if in_use().is_some_and(|bytes| bytes > limit) {
                    end(&format!("expected to need at most {} of memory; --max-memory allows more", Bytes(limit)));
                }
            }
        })?;
        Ok(())
    }

    fn end(message: &str) -> ! {
        complain(message);
        std::process::exit(Outcome::Failed as i32)
    }

    /// Bytes of memory that the process has touched; `None` if the system does not report it.
    fn in_use() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes.saturating_mul(1 << 10))
    }

    fn lower(resource: Resource, limit: u64) {
        if getrlimit(resource).current.is_none_or(|current| current > limit) {
            set(resource, limit);
        }
    }

    /// Sets the limit that can be lifted again. Where the system has none such, there is none.
    fn set(resource: Resource, limit: u64) {
        let maximum = getrlimit(resource).maximum;
        let current = maximum.map_or(limit, |maximum| maximum.min(limit));
        let _ = setrlimit(resource, Rlimit { current: (current < u64::MAX).then_some(current), maximum });
    }
}

#[cfg(unix)]
pub use system::{grant, lift};

/// Systems without such limits: reading keeps to its own.
#[cfg(not(unix))]
mod system {
    use super::Limits;

    impl Limits {
        /// Nothing keeps to them.
        pub fn enforce(self) {
            let _ = (self.memory, self.work);
        }
    }

    /// Nothing is limited.
    pub fn grant(_: u64) {}

    /// Nothing is limited.
    pub fn lift() {}
}

#[cfg(not(unix))]
pub use system::{grant, lift};
