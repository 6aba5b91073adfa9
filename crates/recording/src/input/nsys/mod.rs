//! Exports of Nsight Systems (`nsys export --type sqlite`): their memory events.
//!
//! NVIDIA documents the tables and columns in a [schema](https://docs.nvidia.com/nsight-systems/UserGuide/index.html). A
//! table exists only if it has rows, and columns differ between versions; what is missing is unknown.

mod callers;

use super::sqlite::{Database, Value};
use super::{ReadOptions, Unpacked};
use crate::error::{Error, Result};
use crate::model::nsys::{MemoryEvent, MemoryKind, NsysProfile, NvtxRange, Process, ProfiledGpu};
use callers::{Callers, Texts};
use std::collections::HashMap;
use std::io::{Read, Seek};
use std::path::Path;

const EVENTS: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";
/// The names of the operations of events, and their numbers if the file does not have them.
const OPERATIONS: &str = "ENUM_CUDA_DEV_MEM_EVENT_OPER";
const ALLOCATION: i64 = 0;
const FREE: i64 = 1;
/// Types of NVTX events that are ranges: those of a thread, and those of a process.
const RANGES: [i64; 2] = [59, 60];

/// What to do with the stream that nsys leaves behind if it cannot make a report of it.
const STREAM: &str = "a raw stream of Nsight Systems (.qdstrm); QdstrmImporter, which is in Nsight Systems' folder for the host, \
                      converts it to a report (.nsys-rep), nsys export --type sqlite converts that, and memviz nsys reads the result";

/// Reads an export of Nsight Systems.
///
/// # Errors
/// If the file cannot be read, is not a database, is damaged, or has no memory events.
pub fn read(path: &Path) -> Result<NsysProfile> {
    // The stream has no known first bytes.
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("qdstrm")) {
        return Err(Error::Foreign(STREAM.to_owned()));
    }
    let mut file = super::open(path)?;
    let mut begin = Vec::new();
    file.by_ref().take(super::sqlite::MAGIC.len() as u64).read_to_end(&mut begin)?;
    if begin != super::sqlite::MAGIC {
        return Err(not_a_database(path));
    }
    let bytes = file.metadata()?.len();
    let mut profile = read_database(&mut Database::open(file)?)?;
    profile.bytes = bytes;
    // Changes that SQLite has written but not yet moved into the database.
    for (end, what) in [("-wal", "changes that are not in the database yet"), ("-journal", "an interrupted change")] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        if Path::new(&name).metadata().is_ok_and(|beside| beside.len() > 0) {
            let note = format!(
                "the *{end} file next to the database contains {what}; memviz reads only the database, so rows may be missing"
            );
            profile.notes.push(note);
        }
    }
    Ok(profile)
}

/// The error for a file that is not a database: a report that was not exported, or a compressed file.
fn not_a_database(path: &Path) -> Error {
    let unpacked = super::open(path).and_then(|file| Unpacked::new(file, &ReadOptions::default()));
    match unpacked {
        Ok(unpacked) if unpacked.begins_with(super::sqlite::MAGIC) => {
            Error::Foreign("expected an SQLite database, found a compressed one; unpack it first".to_owned())
        }
        Ok(unpacked) => Error::Foreign(
            unpacked.described().unwrap_or_else(|| "expected an SQLite database, found something else".to_owned()),
        ),
        Err(error) => error,
    }
}

fn read_database<R: Read + Seek>(database: &mut Database<R>) -> Result<NsysProfile> {
    if !database.has(EVENTS) {
        let found = if database.has("StringIds") { "a profile without them" } else { "another database" };
        return Err(no_events(found));
    }
    let mut profile = NsysProfile { schema_version: schema_version(database)?, ..NsysProfile::default() };
    let mut texts = Texts::default();
    let names = ranges(database, &mut profile, &mut texts)?;
    let calls = events(database, &mut profile)?;
    // Some exports contain the tables without rows.
    if profile.events.is_empty() && profile.other_events == 0 {
        return Err(no_events("a profile without them"));
    }
    let callers = Callers::of(database, &profile.events, &calls, &mut texts)?;
    texts.read(database)?;
    for (range, name) in profile.ranges.iter_mut().zip(names) {
        if let Some(name) = name {
            texts.get(name).clone_into(&mut range.name);
        }
    }
    profile.has_call_chains = callers.has_chains();
    profile.callers = callers.finish(&texts, &mut profile.events);
    profile.ranges.sort_by_key(|range| range.start_ns);
    profile.events.sort_by_key(|event| event.start_ns);
    machine(database, &mut profile)?;
    Ok(profile)
}

/// The error for a database that has none of the events.
fn no_events(found: &str) -> Error {
    Error::NotASnapshot(format!(
        "expected memory events of Nsight Systems ({EVENTS}), which nsys profile --cuda-memory-usage=true records; found {found}"
    ))
}

/// Reads the events, in the order of the file, with the number of each event's call.
fn events<R: Read + Seek>(database: &mut Database<R>, profile: &mut NsysProfile) -> Result<Vec<Option<i64>>> {
    let (allocation, free) = operations(database)?;
    let mut calls = Vec::new();
    let (mut row, mut total) = (0_u64, 0_u64);
    let columns = [
        "start",
        "globalPid",
        "deviceId",
        "contextId",
        "address",
        "bytes",
        "memKind",
        "memoryOperationType",
        "correlationId",
        "localMemoryPoolAddress",
        "localMemoryPoolSize",
    ];
    database.rows(EVENTS, columns, |values| {
        row += 1;
        let needed = |place: usize| {
            values[place].integer().ok_or_else(|| {
                Error::NotASnapshot(format!("{EVENTS}, row {row}: expected a number in {}, found none", columns[place]))
            })
        };
        let size = |bytes: i64| {
            u64::try_from(bytes).map_err(|_| {
                Error::NotASnapshot(format!("{EVENTS}, row {row}: expected 0 bytes or more, found {bytes}"))
            })
        };
        let operation = needed(7)?;
        if operation != allocation && operation != free {
            profile.other_events += 1;
            return Ok(());
        }
        // Older versions write zeros for a missing pool.
        let is_pooled = values[9].integer().is_some_and(|address| address != 0);
        let pool = values[10].integer().filter(|_| is_pooled).map(size).transpose()?;
        let bytes = size(needed(5)?)?;
        // So that no sum of sizes overflows.
        total = total.checked_add(bytes).ok_or_else(|| {
            Error::NotASnapshot(format!(
                "{EVENTS}, row {row}: expected less than 16 EiB in all rows together, found more"
            ))
        })?;
        profile.events.push(MemoryEvent {
            start_ns: needed(0)?,
            process: Process::of(needed(1)?),
            device: needed(2)?,
            context: needed(3)?,
            address: needed(4)?.cast_unsigned(),
            bytes,
            kind: MemoryKind::of(needed(6)?),
            is_free: operation == free,
            caller: 0,
            pool_bytes: pool,
        });
        calls.push(values[8].integer());
        Ok(())
    })?;
    Ok(calls)
}

/// The numbers of allocations and frees: those of CUPTI differ from those documented for exports.
fn operations<R: Read + Seek>(database: &mut Database<R>) -> Result<(i64, i64)> {
    let (mut allocation, mut free) = (None, None);
    database.rows(OPERATIONS, ["id", "name", "label"], |[id, name, label]| {
        let text = [name, label].iter().filter_map(|value| value.text()).collect::<Vec<_>>().join(" ");
        let text = text.to_ascii_lowercase();
        if text.contains("dealloc") || text.contains("release") {
            free = free.or(id.integer());
        } else if text.contains("alloc") {
            allocation = allocation.or(id.integer());
        }
        Ok(())
    })?;
    Ok(allocation.zip(free).unwrap_or((ALLOCATION, FREE)))
}

/// Reads the NVTX ranges. Returns the text ID of each name that is not in the table itself.
fn ranges<R: Read + Seek>(
    database: &mut Database<R>,
    profile: &mut NsysProfile,
    texts: &mut Texts,
) -> Result<Vec<Option<i64>>> {
    let mut names = Vec::new();
    let columns = ["start", "end", "eventType", "text", "globalTid", "textId"];
    database.rows("NVTX_EVENTS", columns, |[start, end, kind, text, thread, text_id]| {
        let (Some(start_ns), Some(thread)) = (start.integer(), thread.integer()) else { return Ok(()) };
        if kind.integer().is_some_and(|kind| RANGES.contains(&kind)) {
            let name = if text == Value::Null { text_id.integer() } else { None };
            names.push(name);
            if let Some(name) = name {
                texts.want(name);
            }
            profile.ranges.push(NvtxRange {
                name: text.text().unwrap_or_default(),
                process: Process::of(thread),
                start_ns,
                end_ns: end.integer(),
            });
        }
        Ok(())
    })?;
    Ok(names)
}

fn schema_version<R: Read + Seek>(database: &mut Database<R>) -> Result<Option<String>> {
    let mut version = None;
    database.rows("META_DATA_EXPORT", ["name", "value"], |[name, value]| {
        if name.text().as_deref() == Some("EXPORT_SCHEMA_VERSION") {
            version = value.text();
        }
        Ok(())
    })?;
    Ok(version)
}

/// Reads GPUs, processes and the start of the session.
fn machine<R: Read + Seek>(database: &mut Database<R>, profile: &mut NsysProfile) -> Result<()> {
    database.rows("TARGET_INFO_GPU", ["cuDevice", "name", "totalMemory"], |[device, name, memory]| {
        if let Some(device) = device.integer() {
            let total_bytes = memory.integer().and_then(|bytes| u64::try_from(bytes).ok()).filter(|&bytes| bytes > 0);
            profile.gpus.push(ProfiledGpu { device, name: name.text(), total_bytes });
        }
        Ok(())
    })?;
    let mut named = HashMap::new();
    database.rows("PROCESSES", ["globalPid", "name"], |[process, name]| {
        if let (Some(process), Some(name)) = (process.integer(), name.text()) {
            named.insert(Process::of(process), name);
        }
        Ok(())
    })?;
    profile.processes = named.into_iter().collect();
    profile.processes.sort();
    database.rows("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"], |[start]| {
        profile.session_start_ns = start.integer();
        Ok(())
    })
}
