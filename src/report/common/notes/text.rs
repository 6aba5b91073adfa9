//! Text that is safe to show, and names and figures in it.

use crate::model::bytes::Bytes;
use crate::model::{CPU_DEVICE, DeviceId, HOST_DEVICE};

pub fn device_name(device: DeviceId) -> String {
    match device {
        HOST_DEVICE => "Pinned host memory".to_owned(),
        CPU_DEVICE => "CPU memory".to_owned(),
        device => format!("Device {device}"),
    }
}

/// A counter as PyTorch prints sizes; contradictory recordings may lead below zero.
pub fn signed(bytes: i64) -> String {
    Bytes(bytes).to_string()
}

/// A duration for people: `812 us`, `3.4 ms`, `12.53 s`, `2 h 05 min`.
pub fn duration(micros: i64) -> String {
    let seconds = micros as f64 / 1e6;
    match micros {
        ..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        1_000_000..60_000_000 => format!("{seconds:.2} s"),
        60_000_000..3_600_000_000 => format!("{} min {:02} s", micros / 60_000_000, micros / 1_000_000 % 60),
        _ => format!("{} h {:02} min", micros / 3_600_000_000, micros / 60_000_000 % 60),
    }
}

/// Text from a file, safe to show: control characters, characters that reorder or hide text, and those that XML does not
/// allow are escaped. So are commands to workflow runners, which read them from the log: `::` at the start of a line (GitHub
/// Actions), and anywhere `##[`, `##vso[` in any case (Azure Pipelines), and `##teamcity[`: that is, `##`, any letters, and
/// `[`.
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for next in text.chars() {
        // A line may start with any word, since long lines are broken.
        let command = match next {
            ':' => shown.strip_suffix(':').is_some_and(|line| !line.ends_with(|before: char| !before.is_whitespace())),
            '[' => shown.trim_end_matches(char::is_alphanumeric).ends_with("##"),
            _ => false,
        };
        if command || next.is_control() || is_invisible(next) {
            shown.extend(next.escape_unicode());
        } else {
            shown.push(next);
        }
    }
    shown
}

/// Whether a character is invisible, changes the order of others, or is not a character.
fn is_invisible(next: char) -> bool {
    matches!(next,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(duration(812), "812 us");
        assert_eq!(duration(3_400), "3.4 ms");
        assert_eq!(duration(12_530_000), "12.53 s");
        assert_eq!(duration(7_500_000_000), "2 h 05 min");
    }

    #[test]
    fn commands_to_a_runner_are_shown_not_given() {
        assert_eq!(safe("::stop-commands::x"), ":\\u{3a}stop-commands::x");
        assert_eq!(safe("a  ::add-mask::b"), "a  :\\u{3a}add-mask::b");
        assert_eq!(safe("a ##[error]b ###[x]"), "a ##\\u{5b}error]b ###\\u{5b}x]");
        assert_eq!(safe("##vso[task.x]y ##VsO[a]"), "##vso\\u{5b}task.x]y ##VsO\\u{5b}a]");
        assert_eq!(safe("##teamcity[x] #vso[0] ##vso [0]"), "##teamcity\\u{5b}x] #vso[0] ##vso [0]");
        assert_eq!(safe("at::native::add ops::aten::mm: c10::x"), "at::native::add ops::aten::mm: c10::x");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(safe("a\u{2060}b\u{ad}c\u{e0041}"), "a\\u{2060}b\\u{ad}c\\u{e0041}");
    }

    #[test]
    fn escape_sequences_are_shown_not_sent() {
        assert_eq!(safe("a\u{1b}[31mb\u{202e}"), "a\\u{1b}[31mb\\u{202e}");
    }
}
