// SPDX-License-Identifier: Apache-2.0
//! The compression of a trace file, by its magic number: the first thing that is undone. Files of
//! several members or frames one after the other are read whole, and a file that ends too early is
//! an error. Zeros behind the last member are padding, as tapes and block devices leave it;
//! anything else there is an error too.

use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// Compressed bytes that are read at once.
const INPUT_BYTES: usize = 1 << 17;

/// How a trace is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
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

/// Undoes the compression that the first bytes of `input` show.
pub(super) fn decompress(
    mut input: Box<dyn Read + Send>,
) -> io::Result<(Compression, Box<dyn Read + Send>)> {
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
    if compression == Compression::None {
        // The buffer of the reader is the only one.
        return Ok((compression, Box::new(whole)));
    }
    let whole: Input = BufReader::with_capacity(INPUT_BYTES, Box::new(whole));
    Ok((compression, Box::new(Members::new(compression, whole)?)))
}

/// Compressed bytes.
type Input = BufReader<Box<dyn Read + Send>>;

/// A decoder of one member.
enum Member {
    Gzip(flate2::bufread::GzDecoder<Input>),
    Xz(liblzma::bufread::XzDecoder<Input>),
    Zstd(zstd::Decoder<'static, Input>),
    Bzip2(bzip2::bufread::BzDecoder<Input>),
}

impl Member {
    fn new(compression: Compression, input: Input) -> io::Result<Member> {
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

    /// The bytes behind it.
    fn into_input(self) -> Input {
        match self {
            Member::Gzip(member) => member.into_inner(),
            Member::Xz(member) => member.into_inner(),
            Member::Zstd(member) => member.finish(),
            Member::Bzip2(member) => member.into_inner(),
        }
    }
}

/// One member after the other, up to the end or the padding.
struct Members {
    compression: Compression,
    /// None at the end.
    member: Option<Member>,
}

impl Members {
    fn new(compression: Compression, input: Input) -> io::Result<Members> {
        Ok(Members {
            compression,
            member: Some(Member::new(compression, input)?),
        })
    }

    /// The member behind one that has ended, past zeros. None if nothing else is there.
    fn behind(&self, mut input: Input) -> io::Result<Option<Member>> {
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

impl Read for Members {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            let got = member.read(into)?;
            if got > 0 {
                return Ok(got);
            }
            if let Some(ended) = self.member.take() {
                self.member = self.behind(ended.into_input())?;
            }
        }
        Ok(0)
    }
}
