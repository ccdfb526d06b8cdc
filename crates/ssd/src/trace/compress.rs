// SPDX-License-Identifier: Apache-2.0
//! The compression of a trace file, by its magic number: the first thing that is undone. A decoder of every kind takes files of several members or
//! frames one after the other, and reports a file that ends too early as an error.

use std::fmt;
use std::io::{self, BufReader, Cursor, Read};

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
    let whole = BufReader::with_capacity(INPUT_BYTES, whole);
    let decoded: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(whole),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
        Compression::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(whole)),
        Compression::Zstd => Box::new(zstd::Decoder::with_buffer(whole)?),
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(whole)),
    };
    Ok((compression, decoded))
}
