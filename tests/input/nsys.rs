//! Exports of Nsight Systems: the reader of the database against damage, and against Python's own.

use crate::support::skipped;
use memviz::input::nsys;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const PROFILE: &str = "fixtures/nsys/training.sqlite";

/// What reading these bytes gives: the number of events, or the error, which is one line.
fn read(folder: &Path, bytes: &[u8]) -> Result<usize, String> {
    let path = folder.join("profile.sqlite");
    fs::write(&path, bytes).unwrap();
    let profile = nsys::read(&path).map_err(|error| error.to_string());
    if let Err(error) = &profile {
        assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    }
    profile.map(|profile| profile.events.len())
}

#[test]
fn damage_is_refused_in_a_line_or_read_around() {
    let folder = TempDir::new().unwrap();
    let profile = fs::read(PROFILE).unwrap();
    let events = read(folder.path(), &profile).unwrap();
    assert!(events > 20);
    let mut refused = 0;
    // Any byte of the headers of pages and any seventh of the rest, with values that are counts and page numbers.
    for at in (0..profile.len()).filter(|at| at % 1024 < 16 || at % 7 == 0) {
        let mut damaged = profile.clone();
        damaged[at] = [0xff, 0, profile[at] ^ 1, profile[at].wrapping_add(1)][at % 4];
        refused += usize::from(read(folder.path(), &damaged).is_err());
    }
    assert!(refused > 100, "{refused}");
    // A file that ends early is refused: its header says how many pages there are.
    for length in (0..profile.len()).step_by(997) {
        assert!(read(folder.path(), &profile[..length]).is_err(), "{length}");
    }
}

#[test]
fn pages_that_refer_to_each_other_are_refused() {
    let folder = TempDir::new().unwrap();
    let profile = fs::read(PROFILE).unwrap();
    let interior = (0..profile.len()).step_by(1024).skip(1).find(|&page| profile[page] == 5).expect("an interior page");
    let mut cycle = profile.clone();
    // The last child of an interior page is the page itself.
    let number = interior as u32 / 1024 + 1;
    cycle[interior + 8..interior + 12].copy_from_slice(&number.to_be_bytes());
    let error = read(folder.path(), &cycle).unwrap_err();
    assert!(error.contains("already in use"), "{error}");
    let mut outside = profile;
    outside[interior + 8..interior + 12].copy_from_slice(&u32::MAX.to_be_bytes());
    let error = read(folder.path(), &outside).unwrap_err();
    assert!(error.contains("refers to page 4294967295"), "{error}");
}

#[test]
fn other_encodings_and_files_are_refused() {
    let folder = TempDir::new().unwrap();
    let mut profile = fs::read(PROFILE).unwrap();
    profile[59] = 2;
    assert!(read(folder.path(), &profile).unwrap_err().contains("UTF-16"));
    profile[59] = 1;
    profile[16..18].copy_from_slice(&[3, 0]);
    assert!(read(folder.path(), &profile).unwrap_err().contains("a power of two"));
    assert!(read(folder.path(), b"\x01\x02").unwrap_err().contains("expected an SQLite database"));
    assert!(read(folder.path(), b"").unwrap_err().contains("expected an SQLite database"));
    assert!(read(folder.path(), b"a,b\n1,2\n").unwrap_err().contains("a text file"));
}

/// Writes databases with pages of all sizes and rows of all lengths, and prints the sums of their events.
const MAKE: &str = r#"
import random, sqlite3, sys
COLUMNS = ["start", "globalPid", "deviceId", "contextId", "address", "bytes", "memKind", "memoryOperationType", "name"]
for number, size in enumerate([512, 1024, 4096, 65536] * 2):
    random.seed(number)
    path = f"{sys.argv[1]}/{number}.sqlite"
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA page_size = {size}")
    if number >= 4:
        database.execute("PRAGMA auto_vacuum = FULL")
    order = random.sample(COLUMNS, len(COLUMNS))
    more = ", ".join(f"more{at} TEXT" for at in range(number))
    columns = ", ".join(f'"{name}" INTEGER' if name != "name" else "name TEXT" for name in order)
    database.execute(f"CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS ({columns}{', ' if more else ''}{more})")
    rows = []
    for at in range(random.choice([1, 10, 3000])):
        row = {"start": at, "globalPid": 7 << 24, "deviceId": 0, "contextId": 1, "address": random.getrandbits(47),
               "bytes": random.choice([0, 1, 255, 65536, random.getrandbits(40)]), "memKind": 2, "memoryOperationType": 0,
               "name": random.choice([None, "", "x" * random.randrange(3 * size)])}
        rows.append(row)
        values = [row[name] for name in order]
        marks = ", ".join("?" * len(values))
        database.execute(f"INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS ({', '.join(order)}) VALUES ({marks})", values)
    # Pages that are free, and tables whose pages lie between each other.
    database.execute("CREATE TABLE other AS SELECT * FROM CUDA_GPU_MEMORY_USAGE_EVENTS")
    database.execute("DELETE FROM other WHERE rowid % 2")
    database.commit()
    database.close()
    print(path, len(rows), sum(row["bytes"] for row in rows), sum(row["address"] for row in rows) % (1 << 64))
"#;

#[test]
fn tables_are_read_as_sqlite_writes_them() {
    if !Command::new("python3").args(["-c", "import sqlite3"]).output().is_ok_and(|run| run.status.success()) {
        skipped("there is no python3 with sqlite3");
        return;
    }
    let folder = TempDir::new().unwrap();
    let made = Command::new("python3").args(["-c", MAKE]).arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made = String::from_utf8(made.stdout).unwrap();
    assert_eq!(made.lines().count(), 8);
    for line in made.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let profile = nsys::read(Path::new(words[0])).unwrap_or_else(|error| panic!("{line}: {error}"));
        let bytes: u64 = profile.events.iter().map(|event| event.bytes).sum();
        let addresses = profile.events.iter().fold(0_u64, |sum, event| sum.wrapping_add(event.address));
        let found = [profile.events.len().to_string(), bytes.to_string(), addresses.to_string()];
        assert_eq!(found, words[1..], "{line}");
    }
}
