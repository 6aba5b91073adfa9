//! Limits on the memory and CPU time of a run, so that no file can exhaust a machine.
//!
//! Reading checks [`crate::input::Limits`], and names what exceeds a limit. In addition, the system measures the whole
//! process: if too much memory is in use, if memory is refused, or if the time is used up, the run ends with exit code 2.

use super::outcome::Outcome;
use crate::model::bytes::Bytes;

/// Memory limit of a run, unless `--max-memory` sets another.
pub const MEMORY: &str = "4GiB";
/// The lowest limit: threads and tables need some memory before anything is read.
const LEAST_MEMORY: u64 = 64 << 20;

/// Reads the value of `--max-memory`.
/// Fails if it is not a size, or too low for any file.
pub fn parse_memory(text: &str) -> Result<Bytes, String> {
    let bytes = Bytes::of_device(text).map_err(|error| error.to_string())?;
    let is_enough = bytes.0 >= LEAST_MEMORY;
    is_enough.then_some(bytes).ok_or_else(|| format!("expected at least {}, found {bytes}", Bytes(LEAST_MEMORY)))
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
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

    /// CPU time of any run, in seconds: enough for 20 MB. Each further second is for this many bytes of input.
    const BASE_SECONDS: u64 = 10;
    const BYTES_PER_SECOND: u64 = 2_000_000;

    /// Bytes of the inputs opened so far.
    static GRANTED: AtomicU64 = AtomicU64::new(0);
    static IS_WORK_LIMITED: AtomicBool = AtomicBool::new(false);
    static MEMORY_LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

    /// How often to check: the more room there is, the longer it takes to use it up.
    const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
    const LONGEST_INTERVAL: Duration = Duration::from_millis(100);
    /// More bytes than a process usually touches within a millisecond.
    const BYTES_PER_MILLISECOND: u64 = 8 << 20;

    impl Limits {
        /// Enforces the limits from here on. A lower limit that the process already has stays.
        pub fn enforce(self) {
            // The reason for an abort was already printed on one line: memory was refused. A core dump would not help.
            let _ = signal_hook::flag::register_conditional_shutdown(
                SIGABRT,
                Outcome::Failed as i32,
                Arc::new(AtomicBool::new(true)),
            );
            // Allocated memory is touched gradually, so the watch, which counts touched memory, usually acts first.
            lower(Resource::Data, self.memory.saturating_add(self.memory / 2));
            MEMORY_LIMIT.store(self.memory, Ordering::Relaxed);
            if watch().is_ok() && self.work {
                IS_WORK_LIMITED.store(true, Ordering::Relaxed);
                lower(Resource::Cpu, BASE_SECONDS);
            }
        }
    }

    /// Adds the CPU time for an input of this many bytes.
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

    /// Removes all limits, for other programs and for servers.
    pub fn lift() {
        IS_WORK_LIMITED.store(false, Ordering::Relaxed);
        MEMORY_LIMIT.store(u64::MAX, Ordering::Relaxed);
        for resource in [Resource::Cpu, Resource::Data] {
            set(resource, u64::MAX);
        }
    }

    /// Checks on a separate thread whether the time is used up, and how much memory is in use.
    fn watch() -> std::io::Result<()> {
        let mut signals = Signals::new([SIGXCPU])?;
        std::thread::Builder::new().spawn(move || {
            let mut interval = SHORTEST_INTERVAL;
            loop {
                std::thread::sleep(interval);
                if signals.pending().next().is_some() && IS_WORK_LIMITED.load(Ordering::Relaxed) {
                    let granted = GRANTED.load(Ordering::Relaxed);
                    // The size of standard input is unknown.
                    let input = if granted == 0 { String::new() } else { format!(" for {} of input", Bytes(granted)) };
                    end(&format!(
                        "stopped after {} s of CPU time, the limit{input}; --no-limit lifts the limit",
                        seconds(granted)
                    ));
                }
                let limit = MEMORY_LIMIT.load(Ordering::Relaxed);
                let in_use = in_use();
                if in_use.is_some_and(|bytes| bytes > limit) {
                    end(&format!(
                        "memviz needs more memory than its limit of {}; --max-memory raises the limit",
                        Bytes(limit)
                    ));
                }
                let room = in_use.map_or(0, |bytes| limit - bytes);
                let until_used = Duration::from_millis(room / BYTES_PER_MILLISECOND);
                interval = until_used.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
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

    /// Sets the soft limit, which can be raised again. Does nothing if the system does not have the limit.
    fn set(resource: Resource, limit: u64) {
        let maximum = getrlimit(resource).maximum;
        let current = maximum.map_or(limit, |maximum| maximum.min(limit));
        let _ = setrlimit(resource, Rlimit { current: (current < u64::MAX).then_some(current), maximum });
    }
}

#[cfg(unix)]
pub use system::{grant, lift};

/// Systems without such limits: only the limits of reading apply.
#[cfg(not(unix))]
mod system {
    use super::Limits;

    impl Limits {
        pub fn enforce(self) {
            let _ = (self.memory, self.work);
        }
    }

    pub fn grant(_: u64) {}

    pub fn lift() {}
}

#[cfg(not(unix))]
pub use system::{grant, lift};
