//! `memviz schema`.

use crate::cli::{Failure, Outcome};

pub fn run(_command: Option<&str>) -> Result<Outcome, Failure> {
    Ok(Outcome::Done)
}
