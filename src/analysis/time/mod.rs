//! Instants of a recording as people name them, and what was going on then.

pub mod annotations;
pub mod place;
pub mod when;
