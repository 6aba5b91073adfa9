//! Parses `PYTORCH_CUDA_ALLOC_CONF`: a whole string, or the settings that a snapshot contains only in that string.
//!
//! The string consists of `key:value` pairs, separated by commas. A value may be a list in brackets, which may contain
//! commas. White space is ignored. PyTorch refuses what it does not understand, so an invalid value means that the file is
//! damaged.

use crate::model::AllocatorSettings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    pub key: String,
    /// The values that it accepts.
    pub expected: &'static str,
    pub found: String,
}

impl std::fmt::Display for BadSetting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, expected, found } = self;
        if key == found {
            return write!(formatter, "in the allocator's settings, expected {expected}, found {found:?}");
        }
        write!(formatter, "expected {expected} for {key:?} in the allocator's settings, found {found:?}")
    }
}

/// How the last pair of `roundup_power2_divisions:[256:2,>:4]` is read: from which size on it applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// From twice the last named size, as in newer releases of PyTorch.
    #[default]
    AfterLast,
    /// From the last named size, whose own pair then has no effect, as in older releases.
    FromLast,
}

/// The settings that `text` gives without a snapshot, as PyTorch starts with them.
///
/// # Errors
/// If PyTorch would refuse them: the first unknown key or invalid value.
pub fn parse(text: &str, rest: Rest) -> Result<AllocatorSettings, BadSetting> {
    let mut settings = AllocatorSettings { alloc_conf: text.trim().to_owned(), ..AllocatorSettings::default() };
    let text: String = text.chars().filter(|char| !char.is_whitespace()).collect();
    for pair in split(&text).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once(':') else {
            return Err(bad(pair, "a value after a colon", ""));
        };
        if !enter_string_only(key, value, &mut settings)? && !enter_recorded(key, value, rest, &mut settings)? {
            return Err(unknown(key));
        }
    }
    let large = settings.large_segment_size.unwrap_or(20 << 20);
    if let Some(bytes) = settings.max_split_size.filter(|&bytes| bytes < large) {
        return Err(bad("max_split_size_mb", "at least the size of a large segment", &(bytes >> 20).to_string()));
    }
    Ok(settings)
}

/// How the recording's own string was read, as far as its dictionary of divisions shows.
pub fn rest_of(settings: &AllocatorSettings) -> Rest {
    let divisions = |rest| parse(&settings.alloc_conf, rest).map(|parsed| parsed.roundup_power2_divisions);
    let older = divisions(Rest::FromLast).is_ok_and(|divisions| divisions == settings.roundup_power2_divisions);
    if older && divisions(Rest::AfterLast) != divisions(Rest::FromLast) { Rest::FromLast } else { Rest::AfterLast }
}

/// Reads from `text` into `settings` what a snapshot does not contain elsewhere. Returns a message for each key and value
/// that PyTorch would refuse, and for another allocator than PyTorch's own.
pub fn read(text: &str, settings: &mut AllocatorSettings) -> Vec<String> {
    let text: String = text.chars().filter(|char| !char.is_whitespace()).collect();
    let mut problems = Vec::new();
    let mut elsewhere = AllocatorSettings::default();
    for pair in split(&text).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once(':') else {
            problems.push(bad(pair, "a value after a colon", "").to_string());
            continue;
        };
        let entered = enter_string_only(key, value, settings)
            .and_then(|is_known| Ok(is_known || enter_recorded(key, value, Rest::AfterLast, &mut elsewhere)?));
        match entered {
            Ok(true) => {}
            Ok(false) => problems.push(unknown(key).to_string()),
            Err(bad) => problems.push(bad.to_string()),
        }
    }
    if settings.other_backend {
        problems.push(bad("backend", "PyTorch's own allocator", "cudaMallocAsync").to_string());
    }
    problems
}

/// A message for each key whose value in the text differs from the separate settings in the snapshot; keys that the text does
/// not name may have been set before. `expandable_segments` is not compared: if the platform does not support it, PyTorch
/// turns it off by itself.
pub fn contradictions(settings: &AllocatorSettings) -> Vec<String> {
    let text: String = settings.alloc_conf.chars().filter(|char| !char.is_whitespace()).collect();
    let names = |wanted: &str| split(&text).any(|pair| pair.split_once(':').is_some_and(|(key, _)| key == wanted));
    let Ok(stated) = parse(&settings.alloc_conf, rest_of(settings)) else { return Vec::new() };
    let agrees = [
        ("max_split_size_mb", stated.max_split_size == settings.max_split_size),
        ("roundup_power2_divisions", stated.roundup_power2_divisions == settings.roundup_power2_divisions),
        (
            "garbage_collection_threshold",
            (stated.garbage_collection_threshold - settings.garbage_collection_threshold).abs() < 1e-6,
        ),
    ];
    let contradicted = agrees.into_iter().filter(|&(key, agrees)| !agrees && names(key));
    contradicted
        .map(|(key, _)| format!("the allocator settings contain a different {key} than their settings string"))
        .collect()
}

fn unknown(key: &str) -> BadSetting {
    bad(key, "a setting that PyTorch knows", key)
}

fn bad(key: &str, expected: &'static str, found: &str) -> BadSetting {
    let short = |text: &str| text.chars().take(LONGEST_SHOWN).collect();
    BadSetting { key: short(key), expected, found: short(found) }
}

/// Reads a setting that only the string contains. Returns false if the key is not one of those.
fn enter_string_only(key: &str, value: &str, settings: &mut AllocatorSettings) -> Result<bool, BadSetting> {
    let refuse = |expected| bad(key, expected, value);
    let truth = || flag(value).ok_or(refuse("True or False"));
    match key {
        // A segment serves requests below 10 MiB.
        "large_segment_size_mb" => {
            settings.large_segment_size = mebibytes(value).filter(|&bytes| bytes > 10 << 20);
            settings.large_segment_size.ok_or(refuse("a whole number above 10"))?;
        }
        "max_non_split_rounding_mb" => {
            settings.max_non_split_rounding = mebibytes(value);
            settings.max_non_split_rounding.ok_or(refuse("a whole number"))?;
        }
        "per_process_memory_fraction" => {
            settings.memory_fraction = value.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
            settings.memory_fraction.ok_or(refuse("a number from 0 to 1"))?;
        }
        "pinned_max_round_threshold_mb" => {
            settings.pinned_max_round_threshold = mebibytes(value);
            settings.pinned_max_round_threshold.ok_or(refuse("a whole number"))?;
        }
        "pinned_max_cached_size_mb" => {
            settings.pinned_max_cached_size = mebibytes(value);
            settings.pinned_max_cached_size.ok_or(refuse("a whole number"))?;
        }
        "throw_on_cudamalloc_oom" => settings.throws_on_oom = truth()?,
        "graph_capture_record_stream_reuse" => settings.record_stream_reuse = truth()?,
        "backend" => match value {
            "native" => settings.other_backend = false,
            "cudaMallocAsync" => settings.other_backend = true,
            _ => return Err(refuse("native or cudaMallocAsync")),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads a setting that snapshots also contain separately, or that does not affect memory. Returns false if the key is not
/// one of those.
fn enter_recorded(key: &str, value: &str, rest: Rest, settings: &mut AllocatorSettings) -> Result<bool, BadSetting> {
    let refuse = |expected| bad(key, expected, value);
    match key {
        "max_split_size_mb" => {
            let bytes = mebibytes(value).filter(|&bytes| bytes >= 20 << 20);
            settings.max_split_size = Some(bytes.ok_or(refuse("a whole number of at least 20"))?);
        }
        "expandable_segments" => settings.expandable_segments = flag(value).ok_or(refuse("True or False"))?,
        "garbage_collection_threshold" => {
            let share = value.parse().ok().filter(|&share: &f64| share > 0.0 && share < 1.0);
            settings.garbage_collection_threshold = share.ok_or(refuse("a number between 0 and 1"))?;
        }
        "roundup_power2_divisions" => {
            let divisions = divisions(value, rest);
            settings.roundup_power2_divisions =
                divisions.ok_or(refuse("powers of two, such as 8 or [256:1,512:2,>:4]"))?;
        }
        "pinned_num_register_threads" | "pinned_reserve_segment_size_mb" => {
            value.parse::<u64>().map_err(|_| refuse("a whole number"))?;
        }
        "pinned_use_cuda_host_register"
        | "pinned_use_hip_host_register"
        | "pinned_use_background_threads"
        | "pinned_free_catch_all"
        | "release_lock_on_cudamalloc"
        | "release_lock_on_hipmalloc" => _ = flag(value).ok_or(refuse("True or False"))?,
        "expandable_segments_reserve" | "expandable_segments_reserve_by_class" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// Number of sizes with their own divisions: 1 MiB, 2 MiB, 4 MiB...
const INTERVALS: usize = 16;

/// `8`, or `[256:1,512:2,>:4]`: each pair applies to sizes from this many MiB up to twice as many, and the first pair to all
/// smaller sizes as well.
fn divisions(value: &str, rest: Rest) -> Option<[u64; INTERVALS]> {
    let count = |text: &str| text.parse::<u64>().ok().filter(|&count| count == 0 || count.is_power_of_two());
    // PyTorch accepts 0 only in a list.
    let Some(list) = value.strip_prefix('[') else {
        return Some([count(value).filter(|&count| count > 0)?; INTERVALS]);
    };
    let mut found = [0; INTERVALS];
    let mut last = None;
    for pair in list.strip_suffix(']')?.split(',') {
        let (size, divisions) = pair.split_once(':')?;
        let divisions = count(divisions)?;
        if size == ">" {
            let from = last.map_or(0, |last| if rest == Rest::FromLast { last } else { last + 1 });
            found.iter_mut().skip(from).for_each(|slot| *slot = divisions);
            continue;
        }
        let size = size.parse::<u64>().ok().filter(|size| size.is_power_of_two())?;
        let index = (size.ilog2() as usize).min(INTERVALS - 1);
        let from = if last.is_none() { 0 } else { index };
        found[from..=index].fill(divisions);
        last = Some(index);
    }
    Some(found)
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// Characters of a value that are shown.
const LONGEST_SHOWN: usize = 32;

/// Keys with their values, in order. Commas inside brackets do not separate them.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    text.split(move |char| {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == ',' && depth == 0
    })
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
        assert!(!settings.expandable_segments, "stands in a place of its own");
        assert_eq!(settings.max_non_split_rounding, Some(64 << 20));
        assert_eq!(settings.memory_fraction, Some(0.5));
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn a_whole_string_is_read_as_pytorch_reads_it() {
        let read = |text| parse(text, Rest::AfterLast);
        let settings =
            read("max_split_size_mb:20, garbage_collection_threshold:0.5,roundup_power2_divisions:8").unwrap();
        assert_eq!(settings.max_split_size, Some(20 << 20));
        assert!((settings.garbage_collection_threshold - 0.5).abs() < 1e-9);
        assert_eq!(settings.roundup_power2_divisions, [8; 16]);
        assert!(read("backend:cudaMallocAsync").unwrap().other_backend);
        assert_eq!(read("").unwrap().max_split_size, None);
    }

    #[test]
    fn the_rest_of_divisions_begins_where_the_release_says() {
        let read = |text, rest| parse(text, rest).unwrap().roundup_power2_divisions;
        let text = "roundup_power2_divisions:[2:1,8:2,>:4]";
        assert_eq!(read(text, Rest::AfterLast), [1, 1, 0, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!(read(text, Rest::FromLast), [1, 1, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
        let mut recorded = AllocatorSettings { alloc_conf: text.to_owned(), ..AllocatorSettings::default() };
        assert_eq!(rest_of(&recorded), Rest::AfterLast, "neither");
        recorded.roundup_power2_divisions = read(text, Rest::FromLast);
        assert_eq!(rest_of(&recorded), Rest::FromLast);
    }

    #[test]
    fn settings_that_pytorch_refuses_are_refused_by_name() {
        for (text, key) in [
            ("expandable_segment:True", "expandable_segment"),
            ("expandable_segments:true", "expandable_segments"),
            ("expandable_segments", "expandable_segments"),
            ("max_split_size_mb:10", "max_split_size_mb"),
            ("max_split_size_mb:17592186044416", "max_split_size_mb"),
            ("max_split_size_mb:32,large_segment_size_mb:64", "max_split_size_mb"),
            ("roundup_power2_divisions:3", "roundup_power2_divisions"),
            ("roundup_power2_divisions:[3:2]", "roundup_power2_divisions"),
            ("roundup_power2_divisions:[256:2", "roundup_power2_divisions"),
            ("garbage_collection_threshold:1", "garbage_collection_threshold"),
            ("garbage_collection_threshold:nan", "garbage_collection_threshold"),
            ("backend:mine", "backend"),
        ] {
            assert_eq!(parse(text, Rest::AfterLast).unwrap_err().key, key, "{text}");
        }
    }

    #[test]
    fn the_last_value_counts_and_an_empty_string_is_the_default() {
        assert_eq!(parsed("large_segment_size_mb:12,large_segment_size_mb:64").0.large_segment_size, Some(64 << 20));
        for (text, number) in [
            ("", 0),
            (",", 0),
            ("expandable_segments:True", 0),
            (":", 1),
            ("]]],", 1),
            ("[", 1),
            ("large_segment_size_mb", 1),
            ("newround:8", 1),
            ("roundup_power2_divisions:7", 1),
            ("backend:cudaMallocAsync", 1),
        ] {
            let (settings, problems) = parsed(text);
            assert_eq!((settings.large_segment_size, problems.len()), (None, number), "{text}: {problems:?}");
        }
    }

    #[test]
    fn text_and_values_agree() {
        let text = "max_split_size_mb:30,roundup_power2_divisions:[256:1,>:4],garbage_collection_threshold:0.2";
        let agreeing = AllocatorSettings {
            max_split_size: Some(30 << 20),
            roundup_power2_divisions: parse(text, Rest::FromLast).unwrap().roundup_power2_divisions,
            garbage_collection_threshold: 0.2,
            alloc_conf: text.to_owned(),
            ..AllocatorSettings::default()
        };
        assert_eq!(contradictions(&agreeing), Vec::<String>::new());
        assert_eq!(contradictions(&AllocatorSettings { max_split_size: None, ..agreeing.clone() }).len(), 1);
        assert_eq!(
            contradictions(&AllocatorSettings { roundup_power2_divisions: [0; 16], ..agreeing.clone() }).len(),
            1
        );
        let named = AllocatorSettings { alloc_conf: "max_split_size_mb:30".to_owned(), ..agreeing };
        assert_eq!(contradictions(&named), Vec::<String>::new(), "set before");
    }

    #[test]
    fn invalid_values_are_named_and_ignored() {
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
