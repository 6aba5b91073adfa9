//! Containers with more than one recording, less than a whole one, or additional data: either the whole file is judged, or
//! nothing is.

use crate::support::fixture;
use memviz::Recording;
use memviz::input::ReadOptions;
use std::io::{Cursor, Write};

fn read(bytes: &[u8], allow_truncated: bool) -> Result<Recording, String> {
    let mut options = ReadOptions::default();
    options.allow_truncated = allow_truncated;
    Recording::read(Cursor::new(bytes.to_vec()), &options).map_err(|error| error.to_string())
}

/// The smallest fixture as it was pickled.
fn pickle() -> Vec<u8> {
    crate::support::read_unpacked(&fixture("tiny"))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    archive.start_file(name, options).unwrap();
    archive.write_all(bytes).unwrap();
    archive.finish().unwrap().into_inner()
}

/// An archive with two members of the same name, only the last of which is in the directory of most programs.
fn zip_of_two(first: &[u8], second: &[u8]) -> Vec<u8> {
    let [mut one, two] = [first, second].map(|bytes| zip("snapshot.pickle", bytes));
    let directory = |archive: &[u8]| archive.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    let (at, from) = (directory(&one), directory(&two));
    let (local, mut end) = (two[..from].to_vec(), two[from..].to_vec());
    one.truncate(at);
    // The offset of the member, in its record of the directory, and that of the directory, in the last record.
    end[42..46].copy_from_slice(&(at as u32).to_le_bytes());
    let last = end.len() - 22;
    end[last + 16..last + 20].copy_from_slice(&((at + local.len()) as u32).to_le_bytes());
    [one, local, end].concat()
}

/// An archive whose member has another name in its header than in the directory.
fn renamed(archive: &[u8], name: &[u8], by: &[u8]) -> Vec<u8> {
    let mut changed = archive.to_vec();
    let at = archive.windows(name.len()).position(|window| window == name).unwrap();
    changed[at..at + by.len()].copy_from_slice(by);
    changed
}

#[test]
fn every_byte_of_an_archive_belongs_to_its_one_file() {
    let whole = zip("snapshot.pickle", &pickle());
    assert!(read(&whole, false).is_ok());
    let compressed = {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        archive.add_directory("run", zip::write::SimpleFileOptions::default()).unwrap();
        archive.start_file("run/snapshot.pickle", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(&pickle()).unwrap();
        archive.set_comment("of a run").unwrap();
        archive.finish().unwrap().into_inner()
    };
    assert!(read(&compressed, false).is_ok(), "a folder and a comment are no second file");
    let other = zip("other.pickle", &pickle());
    for (what, bytes) in [
        ("two of one name", zip_of_two(&pickle(), &pickle())),
        ("an archive in front", [&other[..], &whole].concat()),
        ("an archive behind", [&whole[..], &other].concat()),
        ("a file behind", [&whole[..], &pickle()].concat()),
        ("a byte behind", [&whole[..], b"\n"].concat()),
        ("another name in front", renamed(&whole, b"snapshot", b"snapshut")),
    ] {
        let error = read(&bytes, false).map(|_| what).unwrap_err();
        assert!(error.contains("zip"), "{what}: {error}");
        assert!(read(&bytes, true).is_err(), "{what} although it may be cut off");
    }
}

#[test]
fn padding_is_not_part_of_a_file() {
    let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&pickle())].concat();
    let padded = [&gzip(&pickle())[..], &[0; 700]].concat();
    for bytes in [&skippable, &padded] {
        let recording = read(bytes, false).unwrap();
        assert!(recording.is_complete() && !recording.snapshot.notes.followed);
    }
    assert!(read(&[&padded[..], b"x"].concat(), false).is_err(), "something behind the zeros");
    let halves = pickle();
    let (first, second) = halves.split_at(halves.len() / 2);
    assert!(read(&[gzip(first), gzip(second)].concat(), false).is_ok(), "members follow one another");
}

/// The recording itself is complete: what is cut off comes after it.
#[test]
fn an_end_that_is_missing_is_known_to_be() {
    let (gzip, zstd) = (gzip(&pickle()), zstd(&pickle()));
    let behind = |first: &[u8], second: &[u8]| [first, &second[..second.len() / 2]].concat();
    for (what, bytes) in [
        ("the checksum of gzip", gzip[..gzip.len() - 5].to_vec()),
        ("the checksum of zstd", zstd[..zstd.len() - 2].to_vec()),
        ("half of a second member", behind(&gzip, &gzip)),
        ("half of a second frame", behind(&zstd, &zstd)),
    ] {
        assert!(read(&bytes, false).is_err(), "{what}");
        match read(&bytes, true) {
            Ok(recording) => {
                let notes = &recording.snapshot.notes;
                assert!(notes.truncated_at.is_some() || notes.followed, "{what}");
                assert!(!recording.is_complete() || notes.followed, "{what}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}
