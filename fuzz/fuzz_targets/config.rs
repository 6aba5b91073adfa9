//! Any text at all as a `memviz.toml`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memviz::analysis::check::config;
use memviz::model::bytes::Bytes;

fuzz_target!(|text: &str| {
    for text in [text, &format!("[[budget]]\ninput = \"a\"\n{text}")] {
        for capacity in [None, Some(Bytes(80 << 30))] {
            if let Err(error) = config::read(text, capacity) {
                let message = error.to_string();
                assert_eq!(message.lines().count(), 1, "an error is one line: {message:?}");
            }
        }
    }
});
