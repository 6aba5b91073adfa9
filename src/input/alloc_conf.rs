//! `PYTORCH_CUDA_ALLOC_CONF`: the settings that a snapshot holds in that string alone.
//!
//! The string is `key:value` pairs between commas; a value may be a list in brackets, with commas of its own, and white
//! space means nothing. PyTorch refuses what it does not understand, so a value that is none is a file's mistake.

use crate::model::AllocatorSettings;

/// Enters what `text` says into `settings`; what was expected instead of each value that is none.
pub fn read(text: &str, settings: &mut AllocatorSettings) -> Vec<String> {
    let text: String = text.chars().filter(|char| !char.is_whitespace()).collect();
    let mut problems = Vec::new();
    for (key, value) in pairs(&text) {
        let understood = match key {
            // A segment serves requests of less than 10 MiB.
            "large_segment_size_mb" => {
                settings.large_segment_size = mebibytes(value).filter(|&bytes| bytes > 10 << 20);
                settings.large_segment_size.is_some()
            }
            "max_non_split_rounding_mb" => {
                settings.max_non_split_rounding = mebibytes(value);
                settings.max_non_split_rounding.is_some()
            }
            "per_process_memory_fraction" => {
                let fraction = value.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
                settings.memory_fraction = fraction;
                fraction.is_some()
            }
            _ => true,
        };
        if !understood {
            let expected = match key {
                "large_segment_size_mb" => "a whole number above 10",
                "per_process_memory_fraction" => "a number from 0 to 1",
                _ => "a whole number",
            };
            let shown: String = value.chars().take(LONGEST_SHOWN).collect();
            problems.push(format!("expected {expected} for {key:?} in the allocator's settings, found {shown:?}"));
        }
    }
    problems
}

/// Characters of a value that are shown.
const LONGEST_SHOWN: usize = 32;

/// Keys and their values, in order. Commas inside of brackets separate no pairs.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut depth = 0usize;
    let pairs = text.split(move |char| {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == ',' && depth == 0
    });
    pairs.filter_map(|pair| pair.split_once(':'))
}

/// A whole number of MiB in bytes.
fn mebibytes(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (AllocatorSettings, Vec<String>) {
        let mut settings = AllocatorSettings::default();
        let problems = read(text, &mut settings);
        (settings, problems)
    }

    #[test]
    fn values_are_found_among_other_settings() {
        let (settings, problems) = parsed(
            " expandable_segments:True, roundup_power2_divisions:[256:1,512:2,>:4] ,large_segment_size_mb : 12,\
             per_process_memory_fraction:0.5,max_non_split_rounding_mb:64",
        );
        assert_eq!(settings.large_segment_size, Some(12 << 20));
        assert_eq!(settings.max_non_split_rounding, Some(64 << 20));
        assert_eq!(settings.memory_fraction, Some(0.5));
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn the_last_of_several_counts_and_none_is_the_default() {
        assert_eq!(parsed("large_segment_size_mb:12,large_segment_size_mb:64").0.large_segment_size, Some(64 << 20));
        for text in ["", ",", ":", "]]],", "[", "expandable_segments:True", "large_segment_size_mb"] {
            let (settings, problems) = parsed(text);
            assert_eq!((settings.large_segment_size, problems.len()), (None, 0), "{text}");
        }
    }

    #[test]
    fn values_that_are_none_are_named_and_ignored() {
        for (text, expected) in [
            ("large_segment_size_mb:10", "a whole number above 10"),
            ("large_segment_size_mb:twelve", "a whole number above 10"),
            ("large_segment_size_mb:99999999999999999999", "a whole number above 10"),
            ("large_segment_size_mb:17592186044416", "a whole number above 10"),
            ("max_non_split_rounding_mb:-1", "a whole number"),
            ("per_process_memory_fraction:1.5", "a number from 0 to 1"),
            ("per_process_memory_fraction:nan", "a number from 0 to 1"),
        ] {
            let (settings, problems) = parsed(text);
            assert_eq!(settings.large_segment_size, None, "{text}");
            assert_eq!(settings.memory_fraction, None, "{text}");
            let [problem] = &problems[..] else { panic!("{text}: {problems:?}") };
            assert!(problem.contains(&format!("expected {expected} for")), "{problem}");
        }
    }
}
