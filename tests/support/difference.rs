//! Texts compared line by line.

/// Lines that differ, each with two lines of context: `-` before, `+` now. `None` if there are none.
pub fn difference(before: &str, now: &str) -> Option<String> {
    const AROUND: usize = 2;
    if before == now {
        return None;
    }
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if !text.is_empty() && !text.ends_with('\n') {
            lines.push("(no line break at the end)".to_owned());
        }
        lines
    };
    let (before, now) = (lines(before), lines(now));
    let marked = align(&before, &now);
    let changed: Vec<usize> = (0..marked.len()).filter(|&index| marked[index].0 != ' ').collect();
    let shown = |index: usize| changed.iter().any(|&change| change.abs_diff(index) <= AROUND);
    let mut text = String::new();
    let mut gap = false;
    for (index, (mark, line)) in marked.iter().enumerate() {
        if shown(index) {
            text += &format!("{mark} {line}\n");
            gap = false;
        } else if !gap {
            // The lines after the last change are not shown.
            if changed.iter().any(|&change| change > index) {
                text += "  ...\n";
            }
            gap = true;
        }
    }
    Some(text)
}

/// A longest common subsequence of lines, with lines that are only on one side marked.
fn align<'l>(before: &'l [String], now: &'l [String]) -> Vec<(char, &'l str)> {
    let columns = now.len() + 1;
    let mut common = vec![0u32; (before.len() + 1) * columns];
    for i in (0..before.len()).rev() {
        for j in (0..now.len()).rev() {
            common[i * columns + j] = if before[i] == now[j] {
                common[(i + 1) * columns + j + 1] + 1
            } else {
                common[(i + 1) * columns + j].max(common[i * columns + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut marked = Vec::new();
    while i < before.len() || j < now.len() {
        let stays = i < before.len() && j < now.len() && before[i] == now[j];
        let goes = i < before.len() && (j == now.len() || common[(i + 1) * columns + j] >= common[i * columns + j + 1]);
        if stays {
            marked.push((' ', before[i].as_str()));
            (i, j) = (i + 1, j + 1);
        } else if goes {
            marked.push(('-', before[i].as_str()));
            i += 1;
        } else {
            marked.push(('+', now[j].as_str()));
            j += 1;
        }
    }
    marked
}
