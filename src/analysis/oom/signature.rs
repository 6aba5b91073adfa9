//! An ID for the circumstances of an OOM that stays the same from run to run, to count failures and to recognize new ones.

use super::{Cause, Request};
use crate::facts::grouping::attribution::{Attribution, OTHER};
use crate::model::{DEFAULT_POOL, SegmentType};
use crate::wire::ranks::FailureSignature;

impl FailureSignature {
    /// The signature of a failed request, given the allocated memory by site.
    pub(super) fn of(request: &Request, cause: Cause, by_site: &Attribution) -> Self {
        let pool = match request.pool {
            Some(pool) if pool != DEFAULT_POOL => "private",
            _ if request.segment_type() == SegmentType::Small => "small",
            _ => "large",
        };
        let holder = by_site.rows.iter().find(|row| row.label != OTHER).map_or("", |row| row.label.as_str());
        let requester = request.last_known_site.as_ref().unwrap_or(&request.site);
        let (requester, holder) = (without_line(requester), without_line(holder));
        let size_class_bytes = request.bytes.checked_next_power_of_two().unwrap_or(request.bytes);
        let (id, cause_name, pool) = (String::new(), String::new(), pool.to_owned());
        let signature = Self { id, cause: cause_name, requester, holder, size_class_bytes, pool };
        signature.because_of(cause)
    }

    /// The same with another cause.
    pub(super) fn because_of(mut self, cause: Cause) -> Self {
        cause.name().clone_into(&mut self.cause);
        let Self { cause, requester, holder, size_class_bytes, pool, .. } = &self;
        let text = format!("{cause}\n{pool}\n{size_class_bytes}\n{requester}\n{holder}");
        self.id = format!("{:016x}", hash(text.as_bytes()));
        self
    }
}

/// FNV-1a, which does not change with the version of memviz or Rust.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The label of a site without its line number: `model.py forward` of `model.py:82 forward`.
fn without_line(label: &str) -> String {
    let colon =
        label.match_indices(':').find(|(at, _)| label[at + 1..].starts_with(|next: char| next.is_ascii_digit()));
    let Some((at, _)) = colon else { return label.to_owned() };
    let behind = label[at + 1..].trim_start_matches(|next: char| next.is_ascii_digit());
    format!("{}{behind}", &label[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_left_out() {
        assert_eq!(without_line("backward of model.py:82 forward"), "backward of model.py forward");
        assert_eq!(without_line("C:/a/model.py:8"), "C:/a/model.py");
        assert_eq!(without_line("std::vector"), "std::vector");
        assert_eq!(without_line("(no stack)"), "(no stack)");
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
