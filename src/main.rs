//! The `memviz` command: see `memviz help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    memviz::cli::run(std::env::args_os()).into()
}
