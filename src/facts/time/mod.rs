//! Instants of a recording as people name them, and what was going on then.

pub mod annotations;
pub mod moment;
pub mod when;
