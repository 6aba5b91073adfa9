//! Instants of a recording as people name them, and the annotations that are open at them.

pub mod annotations;
pub(crate) mod moment;
pub mod when;
