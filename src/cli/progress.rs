//! A progress bar for files that take longer than half a second.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(50);

pub struct Progress {
    /// Bytes read so far of each input; its reader adds to this.
    pub bytes: Vec<Arc<AtomicU64>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows the progress of reading `total` bytes (0 if unknown) in this many inputs. Nothing is shown if `quiet`, or if
    /// standard error is not a terminal.
    pub fn start(total: u64, inputs: usize, quiet: bool) -> Self {
        let bytes: Vec<Arc<AtomicU64>> = (0..inputs).map(|_| Arc::default()).collect();
        if quiet || !io::stderr().is_terminal() {
            return Self { bytes, thread: None };
        }
        let (stop, stopped) = channel();
        let watched = bytes.clone();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = if total > 0 { ProgressBar::new(total) } else { ProgressBar::no_length() };
            let template =
                if total > 0 { "{bar:30} {bytes} of {total_bytes}, {eta} left" } else { "{spinner} {bytes}" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(watched.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum());
            }
            bar.finish_and_clear();
        });
        Self { bytes, thread: Some((stop, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
