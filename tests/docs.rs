//! README and book are correct: every console block is run and compared, named options exist, and links lead somewhere.
//!
//! A console block contains command lines after `$ `, each followed by its complete output, including errors. They run in a
//! shell, in a separate folder that contains only the fixtures. `MEMVIZ_BLESS=1 cargo test --test docs` rewrites the blocks;
//! read the difference before committing it.
#![cfg(all(feature = "cli", unix))]

mod support;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use support::difference::difference;
use support::{BLESS, assert_none, is_blessing, memviz, names, read_text};

/// The pages of the book.
const BOOK: &str = "docs/src";
/// Further pages.
const PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "fixtures/README.md"];
/// Commands that need no page in the book: their help says everything.
const WITHOUT_PAGE: [&str; 6] = ["completions", "help", "man", "record", "rules", "schema"];

#[test]
fn console_blocks_show_the_output() {
    let mut failures = Vec::new();
    let mut count = 0;
    for page in pages() {
        let (mut text, mut is_new) = (read_text(&page), false);
        let blocks = blocks(&text, |language| language == "console");
        let found: Vec<String> = blocks.par_iter().map(|range| run(&text[range.clone()])).collect();
        count += blocks.len();
        // From the last one on, so that the positions of those before stay valid.
        for (range, found) in blocks.into_iter().zip(found).rev() {
            if is_blessing() {
                is_new |= text[range.clone()] != found;
                text.replace_range(range, &found);
            } else if let Some(difference) = difference(&text[range.clone()], &found) {
                let line = text[..range.start].lines().count();
                failures.push(format!("{page}:{line}\n{difference}"));
            }
        }
        // Other tests read pages meanwhile.
        if is_new {
            fs::write(&page, text).unwrap();
        }
    }
    assert!(count >= 12, "only {count} console blocks were found");
    let hint = format!("{BLESS}=1 cargo test --test docs takes the new output over");
    assert!(failures.is_empty(), "{} blocks show something else; {hint}\n\n{}", failures.len(), failures.join("\n"));
}

/// Runs the commands of a block; returns the block with their output.
fn run(block: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new("fixtures").canonicalize().unwrap();
    std::os::unix::fs::symlink(fixtures, folder.path().join("fixtures")).unwrap();
    let binaries = Path::new(env!("CARGO_BIN_EXE_memviz")).parent().unwrap().to_owned();
    let path = env::join_paths([binaries].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap()))).unwrap();
    let mut text = String::new();
    for line in block.lines().filter(|line| line.starts_with("$ ")) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1; {}", &line[2..])]).current_dir(folder.path()).env("PATH", &path);
        for variable in ["NO_COLOR", "COLUMNS", "RAYON_NUM_THREADS", "CLICOLOR_FORCE"] {
            shell.env_remove(variable);
        }
        let output = String::from_utf8(shell.output().unwrap().stdout).expect("output is UTF-8");
        text.extend([line, "\n", &output]);
    }
    text
}

/// The first example is an excerpt: each of its lines is one of the answer, in order.
#[test]
fn excerpts_match_the_output() {
    let text = read_text("README.md");
    let mut excerpts = 0;
    for block in blocks(&text, |language| language == "text") {
        let Some((command, lines)) = text[block].split_once('\n').filter(|(first, _)| first.starts_with("$ ")) else {
            continue;
        };
        excerpts += 1;
        let answer = run(&format!("{command}\n"));
        let mut answer = answer.lines();
        for line in lines.lines().filter(|line| *line != "...") {
            assert!(answer.any(|next| next == line), "{command} does not print {line:?} here");
        }
    }
    assert_eq!(excerpts, 1);
}

/// Options in shell blocks, which are not run because they name files that do not exist here.
#[test]
fn options_that_pages_name_exist() {
    let mut help: BTreeMap<String, String> = BTreeMap::new();
    let mut problems = Vec::new();
    for page in pages() {
        let text = read_text(&page);
        for block in blocks(&text, |language| language == "sh") {
            for line in text[block].lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let Some(command) = words.iter().position(|word| *word == "memviz") else { continue };
                let command = words.get(command + 1).copied().unwrap_or_default();
                let help = help
                    .entry(command.to_owned())
                    .or_insert_with(|| memviz(&[command, "--help"]).expect(0).stdout.clone());
                let end = words.iter().position(|word| ["|", "#", "&&"].contains(word)).unwrap_or(words.len());
                for option in words[..end].iter().filter(|word| word.starts_with("--")) {
                    let name = option.split('=').next().unwrap();
                    if !help.contains(name) {
                        problems.push(format!("{page}: memviz {command} has no {name}"));
                    }
                }
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn links_resolve() {
    let mut problems = Vec::new();
    for page in pages() {
        let text = read_text(&page);
        let folder = Path::new(&page).parent().unwrap();
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event else { continue };
            if dest_url.contains("://") {
                continue;
            }
            let (file, heading) = dest_url.split_once('#').unwrap_or((&dest_url, ""));
            let target = if file.is_empty() { PathBuf::from(&page) } else { folder.join(file) };
            // A book includes only the files next to its pages.
            let leaves = page.starts_with(BOOK) && normal(&target).is_none_or(|target| !target.starts_with(BOOK));
            if leaves || !target.exists() {
                problems.push(format!("{page}: {dest_url}"));
            } else if !heading.is_empty()
                && !headings(&read_text(target.to_str().unwrap())).contains(&heading.to_owned())
            {
                problems.push(format!("{page}: {dest_url}: no such heading"));
            }
        }
    }
    assert_none(&problems);
}

/// Every page is in the table of contents, and every command has one.
#[test]
fn the_book_is_complete() {
    let contents = read_text(&format!("{BOOK}/SUMMARY.md"));
    let missing = |page: &String| {
        page.starts_with(BOOK) && !page.ends_with("SUMMARY.md") && {
            let name = page.strip_prefix(BOOK).unwrap().trim_start_matches('/');
            !contents.contains(&format!("]({name})"))
        }
    };
    let mut problems: Vec<String> =
        pages().into_iter().filter(missing).map(|page| format!("{BOOK}/SUMMARY.md does not list {page}")).collect();
    let help = memviz(&["help"]).stdout;
    let commands = help.split("Commands (see `memviz COMMAND -h`):\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // The name of its group is before the first command of each.
    let commands = commands.lines().filter_map(|line| line.get(11..)?.split(' ').next());
    for command in commands.filter(|command| !command.is_empty() && !WITHOUT_PAGE.contains(command)) {
        let page = format!("{BOOK}/commands/{command}.md");
        if !Path::new(&page).exists() {
            problems.push(format!("there is no {page}"));
        }
    }
    assert_none(&problems);
}

// ------------------------------------------------------------------ helpers

/// Every page there is, in order.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> =
        PAGES.iter().filter(|page| Path::new(page).exists()).map(|page| (*page).to_owned()).collect();
    let mut folders = vec![BOOK.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            let path = format!("{folder}/{name}");
            if Path::new(&path).is_dir() {
                folders.push(path);
            } else if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// Where the code blocks of some languages are: their contents, as bytes of the page.
fn blocks(page: &str, wanted: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut open: Option<Range<usize>> = None;
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) if wanted(&language) => open = Some(0..0),
            Event::Text(_) => {
                if let Some(open) = &mut open {
                    *open = if open.end == 0 { range } else { open.start..range.end };
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

/// What links to the headings of a page are called, as GitHub and mdBook do it.
fn headings(page: &str) -> Vec<String> {
    let mut headings = Vec::new();
    let mut open: Option<String> = None;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => open = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(open) = &mut open {
                    *open += &text;
                }
            }
            Event::End(TagEnd::Heading(_)) => headings.extend(open.take().map(|heading| slug(&heading))),
            _ => {}
        }
    }
    headings
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|next| next.is_alphanumeric() || matches!(next, ' ' | '-' | '_'));
    kept.map(|next| if next == ' ' { '-' } else { next }).collect()
}

/// A path without `.` and `..`; `None` if it leaves the package.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => normal.pop().then_some(())?,
            std::path::Component::CurDir => {}
            part => normal.push(part),
        }
    }
    Some(normal)
}
