//! Lines of Python tracebacks as text: `File "x.py", line 7, in forward`.

/// File, line and function that a line of a traceback names; `None` for any other text, such as the code below it.
pub fn location(line: &str) -> Option<(&str, u64, &str)> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let (line, name) = rest.split_once(", in ")?;
    Some((file, line.parse().ok()?, name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tracebacks_are_told_from_code() {
        assert_eq!(location("  File \"/a b/x.py\", line 12, in forward\r"), Some(("/a b/x.py", 12, "forward")));
        for other in ["", "    return x", "File \"x.py\"", "File \"x.py\", line 1", "File \"x.py\", line -1, in f"] {
            assert_eq!(location(other), None, "{other}");
        }
    }
}
