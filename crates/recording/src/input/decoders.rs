//! Decoders of compressed input, with a limit on how much the output may exceed the input.

use super::compressed::Compression;
use super::limits::Limits;
use crate::error::{Error, Result};
use std::io::{self, BufRead, Cursor, Read};

/// A reader of the decompressed bytes of `reader`, on the thread that reads from it. A zip archive is read into memory first,
/// since its index is at the end, and is decompressed on a separate thread.
///
/// # Errors
/// If there is nothing to decompress. Damage is reported when it is read.
pub fn decompress(
    reader: Box<dyn Read + Send>,
    compression: Compression,
    limits: Limits,
) -> Result<Box<dyn Read + Send>> {
    let counted = Counted { reader, count: 0 };
    let format = compression.name();
    Ok(match compression {
        Compression::None => counted.reader,
        Compression::Gzip => {
            let members = GzipMembers { member: Some(flate2::bufread::GzDecoder::new(io::BufReader::new(counted))) };
            Box::new(Checked::new(members, GzipMembers::taken, format, limits))
        }
        Compression::Zstd => {
            let decoder = zstd_decoder(counted).map_err(|error| damaged(format, 0, &error))?;
            Box::new(Checked::new(decoder, |zstd| zstd.get_ref().get_ref().count, format, limits))
        }
        Compression::Zip => unzip(counted.reader, limits)?,
    })
}

#[cfg(not(target_family = "wasm"))]
fn zstd_decoder<R: Read>(reader: R) -> io::Result<zstd::Decoder<'static, io::BufReader<R>>> {
    zstd::Decoder::new(reader)
}

#[cfg(target_family = "wasm")]
#[allow(clippy::unnecessary_wraps, reason = "the decoder of other targets has memory to ask for")]
fn zstd_decoder<R: Read>(reader: R) -> io::Result<super::zstd_frames::ZstdFrames<io::BufReader<R>>> {
    Ok(super::zstd_frames::ZstdFrames::new(io::BufReader::new(reader)))
}

/// The contents of all members of a gzip file, without the zeros that some media add as padding at the end.
struct GzipMembers<R> {
    /// The member being read; `None` after the last one.
    member: Option<flate2::bufread::GzDecoder<io::BufReader<Counted<R>>>>,
}

impl<R: Read> GzipMembers<R> {
    fn taken(&self) -> u64 {
        self.member.as_ref().map_or(u64::MAX, |member| member.get_ref().get_ref().count)
    }
}

impl<R: Read> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(member) = self.member.take() else { break };
            let mut rest = member.into_inner();
            let is_padding = rest.fill_buf()?.first().is_none_or(|&byte| byte == 0);
            if is_padding {
                return if only_zeros(&mut rest)? { Ok(0) } else { Err(io::ErrorKind::InvalidData.into()) };
            }
            self.member = Some(flate2::bufread::GzDecoder::new(rest));
        }
        Ok(0)
    }
}

fn only_zeros(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(true);
        }
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        let length = bytes.len();
        reader.consume(length);
    }
}

/// The only file of a zip archive. Its decoder borrows the archive, so both stay on one thread.
#[cfg(not(target_family = "wasm"))]
#[allow(clippy::unnecessary_wraps, reason = "without threads it is decompressed here, which can fail")]
fn unzip(reader: Box<dyn Read + Send>, limits: Limits) -> Result<Box<dyn Read + Send>> {
    let (sender, chunks) = super::compressed::handover();
    std::thread::spawn(move || {
        if let Err(error) = with_unzipped(reader, limits, |file| sender.send_all(file)) {
            sender.send(Err(error));
        }
    });
    Ok(Box::new(chunks))
}

/// The only file of a zip archive. There are no threads, so it is decompressed as a whole.
#[cfg(target_family = "wasm")]
fn unzip(reader: Box<dyn Read + Send>, limits: Limits) -> Result<Box<dyn Read + Send>> {
    let mut bytes = Vec::new();
    with_unzipped(reader, limits, |file| file.read_to_end(&mut bytes))?.map_err(super::unwrap_io)?;
    Ok(Box::new(Cursor::new(bytes)))
}

/// Passes the only file of a zip archive to `take`.
fn with_unzipped<T>(mut reader: impl Read, limits: Limits, take: impl FnOnce(&mut dyn Read) -> T) -> Result<T> {
    let format = Compression::Zip.name();
    let broken = |error| damaged(format, 0, &io::Error::other(error));
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let length = bytes.len() as u64;
    let ends = ends_with_directory(&bytes);
    let mut archive = zip::ZipArchive::new(Cursor::new(&bytes[..])).map_err(broken)?;
    let index = only_file(&mut archive)?;
    if !ends || !is_tiled(&mut archive).map_err(broken)? {
        let message = "expected a zip archive in which every byte belongs to its only file, found other bytes";
        return Err(Error::NotASnapshot(message.to_owned()));
    }
    if !agrees_with_directory(&mut archive, &bytes).map_err(broken)? {
        let message =
            "expected a zip archive with one name for its file, found different names in its header and the directory";
        return Err(Error::NotASnapshot(message.to_owned()));
    }
    let file = archive.by_index(index).map_err(broken)?;
    Ok(take(&mut Checked::new(file, |_| length, format, limits)))
}

/// The file to read: the only one, or the pickle of `torch.save` if nothing but what it writes is beside it.
fn only_file<R: Read + io::Seek>(archive: &mut zip::ZipArchive<R>) -> Result<usize> {
    let mut files = Vec::new();
    for index in 0..archive.len() {
        let file =
            archive.by_index(index).map_err(|error| damaged(Compression::Zip.name(), 0, &io::Error::other(error)))?;
        if file.is_file() {
            files.push((index, file.name().unwrap_or_default().into_owned(), file.size()));
        }
    }
    let saved = files.iter().find_map(|(index, name, _)| Some((*index, name.strip_suffix("data.pkl")?)));
    match (&files[..], saved) {
        (_, Some((index, folder))) if folder.ends_with('/') => {
            let is_expected = |name: &str| name.strip_prefix(folder).is_some_and(|name| TORCH_SAVE.contains(&name));
            let mut others = files.iter().filter(|(other, _, _)| *other != index);
            if others.all(|(_, name, size)| *size <= LONGEST_MARK && is_expected(name)) {
                return Ok(index);
            }
            Err(Error::Foreign(
                "a torch.save file with tensors (a model or its weights); torch.cuda.memory._dump_snapshot writes recordings".to_owned(),
            ))
        }
        (&[(index, _, _)], _) => Ok(index),
        ([], _) => Err(Error::NotASnapshot("expected a zip archive with one file in it, found none".to_owned())),
        _ => Err(Error::NotASnapshot("expected a zip archive with one file in it, found several".to_owned())),
    }
}

/// Files with at most [`LONGEST_MARK`] bytes that `torch.save` writes beside the pickle, whatever it saves.
const TORCH_SAVE: [&str; 5] =
    ["version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id"];
const LONGEST_MARK: u64 = 64;

/// Whether the file ends with the last record of a zip archive and its comment.
fn ends_with_directory(bytes: &[u8]) -> bool {
    const END: &[u8] = b"PK\x05\x06";
    /// Bytes of that record without its comment; the last two are the comment's length.
    const LENGTH: usize = 22;
    let first = bytes.len().saturating_sub(LENGTH + usize::from(u16::MAX));
    let ends = bytes[first..].windows(LENGTH).filter(|record| record.starts_with(END));
    let lengths = ends.map(|record| usize::from(u16::from_le_bytes([record[LENGTH - 2], record[LENGTH - 1]])));
    let starts = bytes[first..].windows(LENGTH).enumerate().filter(|(_, record)| record.starts_with(END));
    starts.zip(lengths).any(|((start, _), length)| first + start + LENGTH + length == bytes.len())
}

/// Whether the members of a zip archive follow each other without gaps from its first byte to its directory. The directory
/// lists one member for each name; a second one, or a file in front, would be in the archive but not be read.
fn is_tiled<R: Read + io::Seek>(archive: &mut zip::ZipArchive<R>) -> zip::result::ZipResult<bool> {
    /// The longest record that may follow a member's data, with its length and checksum.
    const LONGEST_DESCRIPTOR: u64 = 24;
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index)?;
        let start = member.data_start().unwrap_or(0);
        members.push((member.header_start(), start.saturating_add(member.compressed_size())));
    }
    members.sort_unstable();
    let (mut end, mut gap) = (0, 0);
    for (start, next) in members.into_iter().chain([(archive.central_directory_start(), 0)]) {
        if start < end || start - end > gap {
            return Ok(false);
        }
        (end, gap) = (next, LONGEST_DESCRIPTOR);
    }
    Ok(true)
}

/// Whether the header of each member has the same name and compression as in the directory. Programs that read an archive
/// from its start use the header, others the directory.
fn agrees_with_directory<R: Read + io::Seek>(
    archive: &mut zip::ZipArchive<R>,
    bytes: &[u8],
) -> zip::result::ZipResult<bool> {
    /// Positions of the compression and of the name's length in a record.
    const LOCAL: [usize; 3] = [8, 26, 30];
    const CENTRAL: [usize; 3] = [10, 28, 46];
    let fields = |record: &[u8], [method, length, name]: [usize; 3]| {
        let number = |at: usize| Some(u16::from_le_bytes(record.get(at..at + 2)?.try_into().ok()?));
        let length = usize::from(number(length)?);
        Some((number(method)?, record.get(name..name + length)?.to_vec()))
    };
    let record = |at: u64| usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index)?;
        let local = fields(record(member.header_start()), LOCAL);
        let central = fields(record(member.central_header_start()), CENTRAL);
        if local.is_none() || local != central {
            return Ok(false);
        }
    }
    Ok(true)
}

fn damaged(format: &'static str, at: u64, error: &io::Error) -> Error {
    Error::Compression { format, at, message: error.to_string() }
}

/// Decompressed bytes, up to the number allowed for their input. Errors of this crate are wrapped into [`io::Error`].
struct Checked<R, F> {
    decoder: R,
    /// Compressed bytes that the decoder has read so far.
    read_so_far: F,
    format: &'static str,
    limits: Limits,
    sent: u64,
    /// The error after the bytes already returned: these remain valid for `--allow-truncated`.
    pending: Option<Error>,
    failed: bool,
}

impl<R: Read, F: Fn(&R) -> u64> Checked<R, F> {
    fn new(decoder: R, read_so_far: F, format: &'static str, limits: Limits) -> Self {
        Self { decoder, read_so_far, format, limits, sent: 0, pending: None, failed: false }
    }

    fn fail(&mut self, error: Error) -> io::Error {
        self.failed = true;
        io::Error::other(error)
    }
}

impl<R: Read, F: Fn(&R) -> u64> Read for Checked<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.pending.take() {
            return Err(self.fail(error));
        }
        let mut length = 0;
        while length < buffer.len() && !self.failed {
            match self.decoder.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = self.sent + length as u64;
                    let error = match error.kind() {
                        io::ErrorKind::UnexpectedEof => Error::Truncated {
                            at,
                            within: format!("the {} data (the position is in the unpacked data)", self.format),
                        },
                        _ => damaged(self.format, at, &error),
                    };
                    if length == 0 {
                        return Err(self.fail(error));
                    }
                    self.pending = Some(error);
                    break;
                }
            }
        }
        self.sent += length as u64;
        let allowed = (self.read_so_far)(&self.decoder).saturating_mul(self.limits.expansion);
        if self.sent > allowed.saturating_add(self.limits.base_memory) {
            let times = self.limits.expansion;
            let message = format!("{} data expands to more than {times} times its size", self.format);
            return Err(self.fail(Error::Limit { at: self.sent, message }));
        }
        Ok(length)
    }
}

/// Counts the bytes read through it.
struct Counted<R> {
    reader: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.count += count as u64;
        Ok(count)
    }
}
