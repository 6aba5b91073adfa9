//! Matches the rows of two attributions.
//!
//! Rows match if their labels are equal. Lines of code also match after an edit has moved them: lines of the same function in
//! the same file are matched in order, by the shift that most of them share. The memory of a line and that of its backward pass
//! match together. Files match by the end of their paths, since two machines rarely have the same beginning. Only names are
//! compared, so rows may also come from a JSON answer.

use crate::facts::grouping::GroupBy;
use crate::sorting::SortRows;
use indexmap::{IndexMap, IndexSet};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    pub label: &'a str,
    /// Its stack, innermost frame first. Used only under [`GroupBy::Stack`], where a label is not enough.
    pub stack: &'a [String],
}

/// A row of either side, or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Its index in the base; `None` for a new row.
    pub base: Option<usize>,
    /// Its index in the new recording; `None` for a row that has vanished.
    pub new: Option<usize>,
}

/// Matches rows one to one: all new rows in their order, then the vanished ones in theirs.
pub fn match_rows(by: GroupBy, base: &[Name<'_>], new: &[Name<'_>]) -> Vec<Match> {
    let (base_names, new_names) = (distinct(by, base), distinct(by, new));
    let same = match_names(by, &base_names, &new_names);
    // Rows are identified by their names. Equal names share a number.
    let base_number = |name: &&str| base_names.get_index_of(name);
    let new_number = |name: &&str| {
        let index = new_names.get_index_of(name)?;
        Some(same.get(index).copied().flatten().unwrap_or(base_names.len() + index))
    };
    let mut waiting: HashMap<Vec<Option<usize>>, VecDeque<usize>> = HashMap::new();
    for (index, row) in base.iter().enumerate() {
        let names = row.names(by).map(|name| base_number(&name)).collect();
        waiting.entry(names).or_default().push_back(index);
    }
    let mut matches: Vec<Match> = Vec::new();
    for (index, row) in new.iter().enumerate() {
        let names: Vec<_> = row.names(by).map(|name| new_number(&name)).collect();
        let base = waiting.get_mut(&names).and_then(VecDeque::pop_front);
        matches.push(Match { base, new: Some(index) });
    }
    let mut vanished: Vec<usize> = waiting.into_values().flatten().collect();
    vanished.sort_unstable();
    matches.extend(vanished.into_iter().map(|index| Match { base: Some(index), new: None }));
    matches
}

impl<'a> Name<'a> {
    /// The name of a row: its label, or the frames of its stack.
    fn names(self, by: GroupBy) -> impl Iterator<Item = &'a str> {
        let frames = if by == GroupBy::Stack { self.stack } else { &[] };
        let label = frames.is_empty().then_some(self.label);
        label.into_iter().chain(frames.iter().map(String::as_str))
    }
}

fn distinct<'a>(by: GroupBy, rows: &[Name<'a>]) -> IndexSet<&'a str> {
    rows.iter().flat_map(|row| row.names(by)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace<'a> {
    /// The file, shortened as in labels; the whole path if names are ambiguous.
    pub file: &'a str,
    /// The line; 0 if the label has none.
    pub line: u64,
    /// The function; empty for a whole file.
    pub function: &'a str,
    /// Whether it represents the memory of its backward pass.
    pub backward: bool,
}

impl<'a> CodePlace<'a> {
    /// Reads the label of a line of code: `minigpt.py:26 forward`, or `backward of minigpt.py:26 forward`.
    pub fn of_line(label: &'a str) -> Option<Self> {
        let (rest, backward) = match label.strip_prefix("backward of ") {
            Some(rest) => (rest, true),
            None => (label, false),
        };
        let mut colons = rest.rmatch_indices(':');
        // The last colon that is followed by a line and a function: paths and C++ names also contain colons.
        let (file, line, function) = colons.find_map(|(colon, _)| {
            let (line, function) = rest[colon + 1..].split_once(' ')?;
            let is_line = !line.is_empty() && line.bytes().all(|next| next.is_ascii_digit());
            Some((&rest[..colon], line.parse().ok().filter(|_| is_line)?, function))
        })?;
        Some(Self { file, line, function, backward })
    }

    /// Reads a label of groups that are places in code.
    fn of(by: GroupBy, label: &'a str) -> Option<Self> {
        match by {
            GroupBy::Site | GroupBy::Stack => Self::of_line(label),
            GroupBy::Function => {
                let (file, function) = label.rsplit_once(' ')?;
                Some(Self { file, line: 0, function, backward: false })
            }
            GroupBy::File => Some(Self { file: label, line: 0, function: "", backward: false }),
            _ => None,
        }
    }
}

/// The indexes of the names of a line: for its own memory, and for the memory of its backward pass.
type LineNames = [Option<usize>; 2];

#[derive(Default)]
struct Function {
    base: BTreeMap<u64, LineNames>,
    new: BTreeMap<u64, LineNames>,
}

/// For each new name, the index of the same name in the base.
fn match_names(by: GroupBy, base: &IndexSet<&str>, new: &IndexSet<&str>) -> Vec<Option<usize>> {
    let base_places: Vec<Option<CodePlace>> = base.iter().map(|name| CodePlace::of(by, name)).collect();
    let new_places: Vec<Option<CodePlace>> = new.iter().map(|name| CodePlace::of(by, name)).collect();
    let files = |places: &[Option<CodePlace<'_>>]| places.iter().flatten().map(|place| place.file.to_owned()).collect();
    let files = match_files(&files(&base_places), &files(&new_places));

    let mut same = vec![None; new.len()];
    let mut functions: IndexMap<(&str, &str), Function> = IndexMap::new();
    for (index, place) in base_places.iter().enumerate() {
        if let Some(place) = place {
            let function = functions.entry((place.file, place.function)).or_default();
            function.base.entry(place.line).or_default()[usize::from(place.backward)] = Some(index);
        }
    }
    for (index, (place, name)) in new_places.iter().zip(new).enumerate() {
        match place {
            None => same[index] = base.get_index_of(name),
            Some(place) => {
                let Some(file) = files.get(place.file) else { continue };
                if let Some(function) = functions.get_mut(&(file.as_str(), place.function)) {
                    function.new.entry(place.line).or_default()[usize::from(place.backward)] = Some(index);
                }
            }
        }
    }
    let lines = |lines: BTreeMap<u64, LineNames>| lines.into_iter().collect::<Vec<_>>();
    let functions = functions.into_iter().map(|((file, _), of)| (file, lines(of.base), lines(of.new)));
    let mut functions: Vec<_> = functions.collect();
    functions.sort_rows_by_key(|(file, base, _)| (*file, base.first().map(|line| line.0)));
    let mut votes: HashMap<&str, Votes> = HashMap::new();
    for (file, base, new) in &functions {
        votes.entry(file).or_default().count(base, new);
    }
    // The shifts of matched lines by file, up to each line of the base.
    let mut shifts: HashMap<&str, BTreeMap<u64, i128>> = HashMap::new();
    for (file, base, new) in &functions {
        let shifts = shifts.entry(file).or_default();
        let first = base.first().map_or(0, |line| line.0);
        let before = shifts.range(..first).next_back().map_or(0, |(_, &shift)| shift);
        let usual = votes.get(file).and_then(|votes| votes.winner([0, 0])).unwrap_or(0);
        align(base, new, [before, usual], DEEPEST, &mut |base, new| {
            shifts.insert(base.0, i128::from(new.0) - i128::from(base.0));
            for (base, new) in base.1.into_iter().zip(new.1) {
                if let (Some(base), Some(new)) = (base, new) {
                    same[new] = Some(base);
                }
            }
        });
    }
    same
}

/// For each new file, the same file in the base: the one with its name, or else the one whose path shares the longest
/// ending, at least the name of the file.
pub(super) fn match_files(base: &IndexSet<String>, new: &IndexSet<String>) -> HashMap<String, String> {
    /// Number of path parts that are compared.
    const PARTS: usize = 12;
    let mut same: HashMap<String, String> = base.intersection(new).map(|file| (file.clone(), file.clone())).collect();
    let rest = |files: &IndexSet<String>, others: &IndexSet<String>| -> Vec<String> {
        let mut rest: Vec<String> = files.difference(others).cloned().collect();
        rest.sort_unstable();
        rest
    };
    let (mut base, mut new) = (rest(base, new), rest(new, base));
    for parts in (1..=PARTS).rev() {
        if base.is_empty() || new.is_empty() {
            break;
        }
        let mut ends: HashMap<Vec<String>, VecDeque<String>> = HashMap::new();
        for file in &base {
            if let Some(end) = end_of_path(file, parts) {
                ends.entry(end).or_default().push_back(file.clone());
            }
        }
        let mut found = IndexSet::new();
        new.retain(|file| {
            let end = end_of_path(file, parts);
            let partner = end.and_then(|end| ends.get_mut(&end)).and_then(VecDeque::pop_front);
            let Some(partner) = partner else { return true };
            found.insert(partner.clone());
            same.insert(file.clone(), partner);
            false
        });
        base.retain(|file| !found.contains(file));
    }
    same
}

/// The last parts of a path, if it has this many.
fn end_of_path(file: &str, parts: usize) -> Option<Vec<String>> {
    let end: Vec<String> = file.rsplit(['/', '\\']).take(parts).map(str::to_owned).collect();
    (end.len() == parts).then_some(end)
}

/// How often lines differ by each number.
#[derive(Default)]
struct Votes(HashMap<i128, u64>);

/// Number of lines of a function that are considered. A function with more is generated, and a sample shows its shift as
/// well.
const VOTERS: usize = 32;
/// The number of times that the lines between matched lines are examined again.
const DEEPEST: usize = 16;

impl Votes {
    fn count(&mut self, base: &[Line], new: &[Line]) {
        let step = base.len().div_ceil(VOTERS).max(1);
        for &(from, _) in base.iter().step_by(step) {
            for &(to, _) in new {
                *self.0.entry(i128::from(to) - i128::from(from)).or_default() += 1;
            }
        }
    }

    /// The shift with the most votes; among equals the nearest to one that is usual nearby, then the smallest, then the one
    /// that adds lines.
    fn winner(&self, usual: [i128; 2]) -> Option<i128> {
        let distance = |shift: i128| usual.map(|usual| (shift - usual).abs()).into_iter().min();
        let rank = |shift: i128, votes: u64| (votes, Reverse(distance(shift)), Reverse(shift.abs()), shift);
        self.0.iter().map(|(&shift, &votes)| rank(shift, votes)).max().map(|(.., shift)| shift)
    }
}

type Line = (u64, LineNames);

/// Matches lines of one function in order: those that share the most common shift, then the lines between them. `usual` are
/// the shifts of the code before the lines and of the code after them.
fn align(base: &[Line], new: &[Line], usual: [i128; 2], depth: usize, matched: &mut impl FnMut(Line, Line)) {
    let mut votes = Votes::default();
    votes.count(base, new);
    let Some(shift) = votes.winner(usual).filter(|_| depth > 0) else { return };
    let (mut base_rest, mut new_rest) = (base, new);
    let mut before = usual[0];
    loop {
        // Before the next pair with this shift are lines with other shifts.
        let Some((before_base, before_new)) = next_pair(base_rest, new_rest, shift) else {
            return align(base_rest, new_rest, [shift, usual[1]], depth - 1, matched);
        };
        align(&base_rest[..before_base], &new_rest[..before_new], [before, shift], depth - 1, matched);
        matched(base_rest[before_base], new_rest[before_new]);
        (base_rest, new_rest) = (&base_rest[before_base + 1..], &new_rest[before_new + 1..]);
        before = shift;
    }
}

fn next_pair(base: &[Line], new: &[Line], shift: i128) -> Option<(usize, usize)> {
    let (mut at, mut to) = (0, 0);
    loop {
        let wanted = i128::from(base.get(at)?.0) + shift;
        let line = i128::from(new.get(to)?.0);
        match wanted.cmp(&line) {
            std::cmp::Ordering::Less => at += 1,
            std::cmp::Ordering::Greater => to += 1,
            std::cmp::Ordering::Equal => return Some((at, to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of labels under a grouping; `-` for labels without a partner.
    fn pairs<'a>(by: GroupBy, base: &[&'a str], new: &[&'a str]) -> Vec<(&'a str, &'a str)> {
        let names = |labels: &[&'a str]| labels.iter().map(|&label| Name { label, stack: &[] }).collect::<Vec<_>>();
        let matches = match_rows(by, &names(base), &names(new));
        matches.iter().map(|row| (row.base.map_or("-", |at| base[at]), row.new.map_or("-", |at| new[at]))).collect()
    }

    /// Pairs of lines of one function; 0 for lines without a partner.
    fn lines(base: &[u64], new: &[u64]) -> Vec<(u64, u64)> {
        let labels = |lines: &[u64]| lines.iter().map(|line| format!("a.py:{line} forward")).collect::<Vec<_>>();
        let (base_labels, new_labels) = (labels(base), labels(new));
        let base_names: Vec<_> = base_labels.iter().map(|label| Name { label, stack: &[] }).collect();
        let new_names: Vec<_> = new_labels.iter().map(|label| Name { label, stack: &[] }).collect();
        let mut pairs: Vec<_> = match_rows(GroupBy::Site, &base_names, &new_names)
            .iter()
            .map(|row| (row.base.map_or(0, |at| base[at]), row.new.map_or(0, |at| new[at])))
            .collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn labels_of_lines_are_read() {
        let place =
            |label| CodePlace::of_line(label).map(|place| (place.file, place.line, place.function, place.backward));
        assert_eq!(place("minigpt.py:26 forward"), Some(("minigpt.py", 26, "forward", false)));
        assert_eq!(place("backward of m.py:7 f"), Some(("m.py", 7, "f", true)));
        assert_eq!(place(r"C:\x y\a.py:3 <lambda>"), Some((r"C:\x y\a.py", 3, "<lambda>", false)));
        assert_eq!(place("a.py:18446744073709551615 f"), Some(("a.py", u64::MAX, "f", false)));
        for label in ["(no stack)", "at::native::(anonymous namespace)::f", "a.py forward", "a.py:x f", "a.py:+1 f"] {
            assert_eq!(place(label), None, "{label}");
        }
    }

    #[test]
    fn equal_labels_are_one_row() {
        let (base, new) = (["(no stack)", "a.py:1 f", "x"], ["x", "(no stack)", "y"]);
        let expected = vec![("x", "x"), ("(no stack)", "(no stack)"), ("-", "y"), ("a.py:1 f", "-")];
        assert_eq!(pairs(GroupBy::Site, &base, &new), expected);
        // A name that only looks like a line is compared as it is.
        let expected = vec![("-", "step:2 a"), ("step:1 a", "-")];
        assert_eq!(pairs(GroupBy::Annotation, &["step:1 a"], &["step:2 a"]), expected);
    }

    #[test]
    fn lines_of_a_function_shift_together() {
        assert_eq!(lines(&[26], &[28]), [(26, 28)]);
        // Even though two of the three labels are on both sides.
        assert_eq!(lines(&[26, 27, 28], &[27, 28, 29]), [(26, 27), (27, 28), (28, 29)]);
        assert_eq!(lines(&[10, 20, 30], &[10, 20, 30]), [(10, 10), (20, 20), (30, 30)]);
        assert_eq!(lines(&[10, 20], &[12, 22, 30]), [(0, 30), (10, 12), (20, 22)]);
    }

    #[test]
    fn lines_shift_apart_where_code_is_inserted_between_them() {
        assert_eq!(lines(&[10, 20, 30, 40], &[10, 20, 35, 45]), [(10, 10), (20, 20), (30, 35), (40, 45)],);
        assert_eq!(lines(&[10, 20], &[11, 23]), [(10, 11), (20, 23)]);
        assert_eq!(lines(&[10, 15, 20], &[10, 17, 20]), [(10, 10), (15, 17), (20, 20)]);
    }

    #[test]
    fn matches_do_not_cross() {
        assert_eq!(lines(&[41, 42, 43, 45], &[41, 43, 45, 50]), [(0, 50), (41, 41), (42, 0), (43, 43), (45, 45)]);
    }

    #[test]
    fn the_nearest_line_wins_and_each_is_matched_once() {
        assert_eq!(lines(&[10], &[7, 11, 14]), [(0, 7), (0, 14), (10, 11)]);
        assert_eq!(lines(&[10, 12], &[11]), [(10, 11), (12, 0)]);
    }

    #[test]
    fn functions_move_with_their_file() {
        // Alone, `g` would go to the nearer line.
        let base = ["a.py:10 f", "a.py:11 f", "a.py:50 g"];
        let new = ["a.py:30 f", "a.py:31 f", "a.py:49 g", "a.py:70 g"];
        let expected = vec![
            ("a.py:10 f", "a.py:30 f"),
            ("a.py:11 f", "a.py:31 f"),
            ("-", "a.py:49 g"),
            ("a.py:50 g", "a.py:70 g"),
        ];
        assert_eq!(pairs(GroupBy::Site, &base, &new), expected);
    }

    #[test]
    fn lines_above_an_edit_stay_where_they_are() {
        // Lines 33 to 36 became line 33: line 36 moved with the code below, and line 29 is above the edit.
        let found = lines(&[29, 33, 34, 35, 36, 38, 49, 50], &[29, 33, 35, 46, 47]);
        let expected = [(29, 29), (33, 0), (34, 0), (35, 0), (36, 33), (38, 35), (49, 46), (50, 47)];
        assert_eq!(found, expected);
    }

    #[test]
    fn backward_moves_with_its_line() {
        // By themselves, lines 35 and 36 would have become lines 62 and 63.
        let base = ["backward of a.py:35 f", "backward of a.py:36 f", "backward of a.py:65 f"];
        let base_lines = ["a.py:35 f", "a.py:36 f", "a.py:65 f", "a.py:66 f", "a.py:70 f"];
        let new = ["backward of a.py:62 f", "backward of a.py:63 f", "a.py:62 f", "a.py:63 f", "a.py:67 f"];
        let expected = vec![
            (base[2], new[0]),
            ("-", new[1]),
            (base_lines[2], new[2]),
            (base_lines[3], new[3]),
            (base_lines[4], new[4]),
            (base[0], "-"),
            (base[1], "-"),
            (base_lines[0], "-"),
            (base_lines[1], "-"),
        ];
        assert_eq!(pairs(GroupBy::Site, &[&base[..], &base_lines].concat(), &new), expected);
        // Its line may hold nothing.
        let expected = vec![("a.py:5 f", "a.py:7 f"), ("backward of a.py:6 f", "backward of a.py:8 f")];
        let found = pairs(GroupBy::Site, &["a.py:5 f", "backward of a.py:6 f"], &["a.py:7 f", "backward of a.py:8 f"]);
        assert_eq!(found, expected);
    }

    #[test]
    fn functions_and_files_are_not_mixed() {
        let expected = vec![("-", "a.py:2 g"), ("-", "b.py:1 f"), ("a.py:1 f", "-"), ("backward of a.py:2 g", "-")];
        assert_eq!(pairs(GroupBy::Site, &["a.py:1 f", "backward of a.py:2 g"], &["a.py:2 g", "b.py:1 f"]), expected);
    }

    #[test]
    fn files_are_the_same_by_the_end_of_their_paths() {
        let base = ["/home/a/run/train.py", "/home/a/run/model/net.py", "/home/a/run/data/net.py", "/only/base.py"];
        let new = ["/srv/net/data/net.py", "/srv/net/model/net.py", r"D:\run\train.py", "/only/new.py"];
        let expected = vec![(base[2], new[0]), (base[1], new[1]), (base[0], new[2]), ("-", new[3]), (base[3], "-")];
        assert_eq!(pairs(GroupBy::File, &base, &new), expected);
        // A path is shown whole if a second file with the same name must be distinguished.
        let new = ["/x/a.py:3 f", "/y/b/a.py:3 f"];
        let expected = vec![("a.py:2 f", new[0]), ("-", new[1])];
        assert_eq!(pairs(GroupBy::Site, &["a.py:2 f"], &new), expected);
        assert_eq!(pairs(GroupBy::Function, &["/v/a.py f"], &["/w/a.py f"]), [("/v/a.py f", "/w/a.py f")]);
    }

    #[test]
    fn stacks_are_the_same_when_all_their_frames_are() {
        let stack = |frames: &[&str]| frames.iter().map(|&frame| frame.to_owned()).collect::<Vec<_>>();
        let base = [stack(&["a.py:5 f", "a.py:20 main"]), stack(&["a.py:5 f", "a.py:21 main"]), Vec::new()];
        let new = [stack(&["a.py:6 f", "a.py:23 main"]), stack(&["a.py:6 f", "a.py:22 main"]), Vec::new()];
        let label = |stack: &[String]| if stack.is_empty() { "(no stack)" } else { "a.py:5 f" };
        let [base, new] =
            [&base, &new].map(|stacks| stacks.each_ref().map(|stack| Name { label: label(stack), stack }));
        let matches = match_rows(GroupBy::Stack, &base, &new);
        let both = |base, new| Match { base: Some(base), new: Some(new) };
        assert_eq!(matches, [both(1, 0), both(0, 1), both(2, 2)]);
    }

    #[test]
    fn rows_of_one_name_are_matched_one_to_one() {
        assert_eq!(pairs(GroupBy::Module, &["a", "a"], &["a"]), [("a", "a"), ("a", "-")]);
        assert_eq!(pairs(GroupBy::Site, &[], &["a.py:1 f"]), [("-", "a.py:1 f")]);
    }

    #[test]
    fn lines_without_a_common_shift_are_matched_once_all_the_same() {
        let base: Vec<u64> = (1..500).map(|line| line * line).collect();
        let new: Vec<u64> = (1..400).map(|line| line * line * 2 + line).collect();
        let pairs = lines(&base, &new);
        let side = |side: fn(&(u64, u64)) -> u64| pairs.iter().map(side).filter(|&line| line > 0).count();
        assert_eq!((side(|pair| pair.0), side(|pair| pair.1)), (499, 399));
        assert!(pairs.len() < 899, "some are matched");
    }
}
