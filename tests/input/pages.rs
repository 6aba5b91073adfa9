//! Pages of `_memory_viz.py trace_plot`.

use crate::support::{fixture, open, read_unpacked};
use crate::{error, read};
use memviz::Recording;
use memviz::input::ReadOptions;
use std::io::Cursor;

/// Base64 as Python writes it.
fn base64(bytes: &[u8]) -> String {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|index| u32::from(group.get(index).copied().unwrap_or(0)));
        let bits = a << 16 | b << 8 | c;
        for index in 0..4 {
            let character = alphabet[(bits >> (18 - 6 * index)) as usize & 63];
            text.push(if index > group.len() { '=' } else { char::from(character) });
        }
    }
    text
}

/// A page around a pickle. PyTorch appends zeros, so that base64 needs no padding.
fn page(pickle: &[u8]) -> String {
    let mut padded = pickle.to_vec();
    padded.resize(pickle.len() + 3 - pickle.len() % 3, 0);
    format!(
        "\n<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type=\"module\">\n\
         import {{add_local_files}} from \"https://example.org/MemoryViz.js\"\n\
         const local_files = [{{\"name\": \"snapshot.pickle\", \"base64\": \"{}\"}}]\n\
         add_local_files(local_files, 'Active Memory Timeline')\n</script>\n</body>\n",
        base64(&padded)
    )
}

#[test]
fn a_page_is_read_as_the_pickle_in_it() {
    for name in ["gpt_late", "oom"] {
        let path = fixture(name);
        let (plain, paged) = (open(&path), read(page(&read_unpacked(&path)).as_bytes()).unwrap());
        assert_eq!(plain.histories.len(), paged.histories.len());
        for (plain, paged) in plain.histories.iter().zip(&paged.histories) {
            assert_eq!(plain.allocations, paged.allocations);
            assert_eq!((plain.maxima, plain.end), (paged.maxima, paged.end));
        }
        assert_eq!(plain.snapshot.segments.len(), paged.snapshot.segments.len());
        assert!(!paged.snapshot.notes.followed, "padding is no second recording");
    }
}

#[test]
fn a_page_that_was_cut_off_is_read_up_to_there() {
    let page = page(&read_unpacked(&fixture("gpt_late")));
    let cut = &page.as_bytes()[..page.len() / 2];
    assert!(error(cut).contains("--allow-truncated"), "{}", error(cut));
    let mut options = ReadOptions::default();
    options.allow_truncated = true;
    let recording = Recording::read(Cursor::new(cut.to_vec()), &options).unwrap();
    assert!(recording.histories[0].completeness.truncated && recording.histories[0].entries() > 100);
}

#[test]
fn two_recordings_in_a_page_are_not_one() {
    let twice = page(&read_unpacked(&fixture("empty"))).repeat(2);
    assert!(error(twice.as_bytes()).contains("more than one recording"), "{}", error(twice.as_bytes()));
}
