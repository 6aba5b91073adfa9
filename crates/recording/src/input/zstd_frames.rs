//! Zstandard where the C library cannot be built: the same bytes from a decoder in Rust.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::error::Error;
use std::io::{self, BufRead, Read};

/// The contents of all frames of a stream, one after the other.
pub struct ZstdFrames<R> {
    reader: R,
    decoder: FrameDecoder,
    /// Whether a frame was started but not finished.
    within: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    /// At the start of the first frame.
    pub fn new(reader: R) -> Self {
        Self { reader, decoder: FrameDecoder::new(), within: false }
    }

    #[cfg(target_family = "wasm")]
    pub fn get_ref(&self) -> &R {
        &self.reader
    }

    /// Starts the next frame that is not skippable; returns false at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.reader.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.reader) {
                Ok(()) => {
                    self.within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.reader.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(false)
    }

    /// Finishes a frame whose contents were all read.
    fn end(&mut self) -> io::Result<()> {
        self.within = false;
        match self.decoder.get_checksum_from_data() {
            Some(stated) if self.decoder.get_calculated_checksum() != Some(stated) => {
                Err(io::Error::other("Restored data doesn't match checksum"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() && (self.within || self.begin()?) {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder.decode_blocks(&mut self.reader, BlockDecodingStrategy::UptoBlocks(1)).map_err(failed)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            self.end()?;
        }
        Ok(0)
    }
}

/// The decoder's error, or the error for a stream that ends too early, if that is the cause.
fn failed(error: FrameDecoderError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        let is_end = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        if inner.downcast_ref::<io::Error>().is_some_and(is_end) {
            return io::ErrorKind::UnexpectedEof.into();
        }
        cause = inner.source();
    }
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        ZstdFrames::new(bytes).read_to_end(&mut content).map(|_| content)
    }

    /// Contents of a few blocks that are neither constant nor completely random.
    fn content() -> Vec<u8> {
        (0..400_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> (n % 29)).to_le_bytes()).collect()
    }

    fn compressed(content: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        io::copy(&mut &content[..], &mut encoder).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn content_comes_back_from_one_frame_or_several() {
        let content = content();
        let frame = compressed(&content);
        assert!(decoded(&frame).unwrap() == content);
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &frame, &compressed(b""), &frame].concat();
        assert!(decoded(&skipped).unwrap() == [&content[..], &content].concat());
        assert!(decoded(&[]).unwrap().is_empty());
    }

    #[test]
    fn truncation_and_corruption_are_noticed() {
        let frame = compressed(&content());
        for length in [1, 5, 9, frame.len() / 2, frame.len() - 1] {
            let error = decoded(&frame[..length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}: {error}");
        }
        let mut changed = frame.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(decoded(&changed).unwrap_err().to_string(), "Restored data doesn't match checksum");
        assert!(decoded(&[&frame[..], b"more"].concat()).is_err(), "what follows is no frame");
    }
}
