// SPDX-License-Identifier: Apache-2.0
//! The compression of a trace file, recognised by its magic number and undone first. The readers of
//! key-value traces ([`crate::trace`]) and the simulator's readers of block traces call this.
//!
//! A file of several successive members or frames is read as a whole. A file that ends too early is
//! an error. Zeros after the last member are padding, as tapes and block devices leave it. Anything
//! else there is an error too.

use std::fmt;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

/// Compressed bytes that are read at once.
const INPUT_BYTES: usize = 1 << 17;

/// How a trace is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// zstd.
    Zstd,
    /// bzip2.
    Bzip2,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "not compressed",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
        })
    }
}

impl Compression {
    /// The compression's name in results, one lowercase word.
    ///
    /// ```
    /// assert_eq!(senko_workload::Compression::Xz.name(), "xz");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
        }
    }
}

/// Decompresses `input`, if its first bytes show a compression. Other content is passed on
/// unchanged, without a buffer.
///
/// # Errors
/// If the first bytes cannot be read, or the decoder has no memory.
///
/// ```
/// use std::io::Read;
///
/// let (compression, mut input) = senko_workload::decompress(&b"1 2 0 0\n"[..])?;
/// let mut text = String::new();
/// input.read_to_string(&mut text)?;
/// assert_eq!((compression.name(), text.as_str()), ("none", "1 2 0 0\n"));
/// # std::io::Result::Ok(())
/// ```
pub fn decompress<R: Read>(mut input: R) -> io::Result<(Compression, Decompressed<R>)> {
    let mut magic = Vec::with_capacity(6);
    input.by_ref().take(6).read_to_end(&mut magic)?;
    let compression = match magic[..] {
        [0x1f, 0x8b, 0x08, ..] => Compression::Gzip,
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Xz,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => Compression::Bzip2,
        _ => Compression::None,
    };
    let whole = Cursor::new(magic).chain(input);
    let state = if compression == Compression::None {
        State::Plain(whole)
    } else {
        let whole = BufReader::with_capacity(INPUT_BYTES, whole);
        let member = Member::new(compression, whole)?;
        State::Members(Some(member))
    };
    Ok((compression, Decompressed { compression, state }))
}

/// All of the input, including its first bytes.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// Compressed bytes.
type Input<R> = BufReader<Whole<R>>;

/// The bytes of a file, decompressed; [`decompress`] makes it.
pub struct Decompressed<R: Read> {
    compression: Compression,
    state: State<R>,
}

enum State<R: Read> {
    Plain(Whole<R>),
    /// The decoder of the next member; `None` at the end or at the padding.
    Members(Option<Member<R>>),
}

/// A decoder of one member.
enum Member<R: Read> {
    Gzip(flate2::bufread::GzDecoder<Input<R>>),
    Xz(liblzma::bufread::XzDecoder<Input<R>>),
    Zstd(zstd::Decoder<'static, Input<R>>),
    Bzip2(bzip2::bufread::BzDecoder<Input<R>>),
}

impl<R: Read> Member<R> {
    fn new(compression: Compression, input: Input<R>) -> io::Result<Member<R>> {
        Ok(match compression {
            Compression::Gzip => Member::Gzip(flate2::bufread::GzDecoder::new(input)),
            Compression::Xz => Member::Xz(liblzma::bufread::XzDecoder::new(input)),
            Compression::Zstd => Member::Zstd(zstd::Decoder::with_buffer(input)?.single_frame()),
            Compression::Bzip2 => Member::Bzip2(bzip2::bufread::BzDecoder::new(input)),
            Compression::None => {
                return Err(io::Error::other("what is not compressed has no members"));
            }
        })
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Member::Gzip(member) => member.read(into),
            Member::Xz(member) => member.read(into),
            Member::Zstd(member) => member.read(into),
            Member::Bzip2(member) => member.read(into),
        }
    }

    /// The bytes after it.
    fn into_input(self) -> Input<R> {
        match self {
            Member::Gzip(member) => member.into_inner(),
            Member::Xz(member) => member.into_inner(),
            Member::Zstd(member) => member.finish(),
            Member::Bzip2(member) => member.into_inner(),
        }
    }
}

impl<R: Read> Decompressed<R> {
    /// The member after one that has ended, skipping zeros. `None` if nothing else is there.
    fn behind(&self, mut input: Input<R>) -> io::Result<Option<Member<R>>> {
        loop {
            let bytes = input.fill_buf()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let all = zeros == bytes.len();
            input.consume(zeros);
            if !all {
                return Member::new(self.compression, input).map(Some);
            }
        }
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let ended = match &mut self.state {
                State::Plain(whole) => return whole.read(into),
                State::Members(None) => return Ok(0),
                State::Members(Some(member)) => {
                    let got = member.read(into)?;
                    if got > 0 {
                        return Ok(got);
                    }
                    std::mem::replace(&mut self.state, State::Members(None))
                }
            };
            if let State::Members(Some(member)) = ended {
                let next = self.behind(member.into_input())?;
                self.state = State::Members(next);
            }
        }
    }
}
