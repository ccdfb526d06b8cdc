// SPDX-License-Identifier: Apache-2.0
//! The binary protocol: the 24-byte header, opcodes, and the lengths that each opcode allows.
//!
//! ```text
//!  0      1       2        4       5        6        8        12      16    24
//!  | 0x80 | opcode | key len | extras | type | vbucket | body len | opaque | cas | extras, key, value
//! ```
//! All fields are big-endian; the body length counts extras, key and value.

use super::MAX_KEY;

/// First byte of a request.
pub const REQUEST: u8 = 0x80;
/// First byte of a reply.
pub const REPLY: u8 = 0x81;
pub const HEADER: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
// The protocol's names; their texts are in `text`.
pub enum Status {
    Success = 0,
    NotFound = 1,
    Exists = 2,
    TooLarge = 3,
    Invalid = 4,
    NotStored = 5,
    NotNumeric = 6,
    AuthError = 0x20,
    UnknownCommand = 0x81,
    OutOfMemory = 0x82,
}

impl Status {
    /// memcached's text for this status.
    pub fn text(self) -> &'static str {
        match self {
            Status::Success => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::Invalid => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NotNumeric => "Non-numeric server-side value for incr or decr",
            Status::AuthError => "Auth failure.",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory",
        }
    }
}

/// What an opcode requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// The protocol's names.
pub enum Kind {
    Get { key: bool },
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Delete,
    Increment,
    Decrement,
    Quit,
    Flush,
    Noop,
    Version,
    Stat,
    Verbosity,
    Touch,
    GetTouch { key: bool },
    Sasl,
    Unknown,
}

/// Maps an opcode to its kind, and whether it is the quiet variant.
pub fn kind(opcode: u8) -> (Kind, bool) {
    match opcode {
        0x00 => (Kind::Get { key: false }, false),
        0x01 => (Kind::Set, false),
        0x02 => (Kind::Add, false),
        0x03 => (Kind::Replace, false),
        0x04 => (Kind::Delete, false),
        0x05 => (Kind::Increment, false),
        0x06 => (Kind::Decrement, false),
        0x07 => (Kind::Quit, false),
        0x08 => (Kind::Flush, false),
        0x09 => (Kind::Get { key: false }, true),
        0x0a => (Kind::Noop, false),
        0x0b => (Kind::Version, false),
        0x0c => (Kind::Get { key: true }, false),
        0x0d => (Kind::Get { key: true }, true),
        0x0e => (Kind::Append, false),
        0x0f => (Kind::Prepend, false),
        0x10 => (Kind::Stat, false),
        0x11 => (Kind::Set, true),
        0x12 => (Kind::Add, true),
        0x13 => (Kind::Replace, true),
        0x14 => (Kind::Delete, true),
        0x15 => (Kind::Increment, true),
        0x16 => (Kind::Decrement, true),
        0x17 => (Kind::Quit, true),
        0x18 => (Kind::Flush, true),
        0x19 => (Kind::Append, true),
        0x1a => (Kind::Prepend, true),
        0x1b => (Kind::Verbosity, false),
        0x1c => (Kind::Touch, false),
        0x1d => (Kind::GetTouch { key: false }, false),
        0x1e => (Kind::GetTouch { key: false }, true),
        0x20..=0x22 => (Kind::Sasl, false),
        0x23 => (Kind::GetTouch { key: true }, false),
        0x24 => (Kind::GetTouch { key: true }, true),
        _ => (Kind::Unknown, false),
    }
}

/// A request's header, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub opcode: u8,
    pub kind: Kind,
    pub quiet: bool,
    pub key_len: usize,
    pub extras_len: usize,
    pub value_len: usize,
    /// Returned unchanged in the reply.
    pub opaque: [u8; 4],
    /// CAS value to compare with, or 0.
    pub cas: u64,
}

/// Why a request ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It is not a request header: the connection is closed without an answer.
    Magic,
    /// The request is answered with this status, then the connection is closed.
    Answer(Header, Status),
}

impl Header {
    /// Parses a header; `bytes` has at least [`HEADER`] bytes.
    ///
    /// # Errors
    /// If the magic byte is wrong, or the opcode does not allow a length.
    pub fn read(bytes: &[u8]) -> Result<Header, Broken> {
        let b: &[u8; HEADER] = bytes[..HEADER].try_into().expect("a slice of 24 bytes");
        if b[0] != REQUEST {
            return Err(Broken::Magic);
        }
        let key_len = usize::from(u16::from_be_bytes([b[2], b[3]]));
        let extras_len = usize::from(b[4]);
        let body_len = u32::from_be_bytes([b[8], b[9], b[10], b[11]]) as usize;
        let (kind, quiet) = kind(b[1]);
        let mut header = Header {
            opcode: b[1],
            kind,
            quiet,
            key_len,
            extras_len,
            value_len: 0,
            opaque: [b[12], b[13], b[14], b[15]],
            cas: u64::from_be_bytes([b[16], b[17], b[18], b[19], b[20], b[21], b[22], b[23]]),
        };
        if key_len + extras_len > body_len {
            return Err(Broken::Answer(header, Status::UnknownCommand));
        }
        header.value_len = body_len - key_len - extras_len;
        if key_len > MAX_KEY || !header.lengths_allowed() {
            return Err(Broken::Answer(header, Status::Invalid));
        }
        Ok(header)
    }

    pub fn head(&self) -> Head {
        Head {
            opcode: self.opcode,
            opaque: self.opaque,
            quiet: self.quiet,
        }
    }

    /// The head of a reply that is sent even if the request is quiet.
    pub fn loud(&self) -> Head {
        Head {
            quiet: false,
            ..self.head()
        }
    }

    fn lengths_allowed(&self) -> bool {
        let (key, extras, value) = (self.key_len > 0, self.extras_len, self.value_len > 0);
        match self.kind {
            Kind::Get { .. } | Kind::Delete => key && extras == 0 && !value,
            Kind::Set | Kind::Add | Kind::Replace => key && extras == 8,
            Kind::Append | Kind::Prepend => key && extras == 0,
            Kind::Increment | Kind::Decrement => key && extras == 20 && !value,
            Kind::Quit | Kind::Noop | Kind::Version => !key && extras == 0 && !value,
            Kind::Flush => !key && (extras == 0 || extras == 4) && !value,
            Kind::Stat => extras == 0 && !value,
            Kind::Verbosity => !key && extras == 4 && !value,
            Kind::Touch | Kind::GetTouch { .. } => key && extras == 4 && !value,
            // Listing the mechanisms has no arguments; the other two have a mechanism's name as
            // their key.
            Kind::Sasl => {
                extras == 0
                    && (self.opcode != 0x20 || (!key && !value))
                    && (self.opcode == 0x20 || key)
            }
            Kind::Unknown => true,
        }
    }
}

/// A big-endian 32-bit number of the extras.
pub fn extra_u32(extras: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(extras[at..at + 4].try_into().expect("a slice of 4 bytes"))
}

/// A big-endian 64-bit number of the extras.
pub fn extra_u64(extras: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(extras[at..at + 8].try_into().expect("a slice of 8 bytes"))
}

/// The fields of its request that a reply header repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub opcode: u8,
    pub opaque: [u8; 4],
    /// Whether there is no reply in the nominal case.
    pub quiet: bool,
}

impl Head {
    pub fn push(
        &self,
        out: &mut Vec<u8>,
        status: Status,
        extras: usize,
        key: usize,
        body: usize,
        cas: u64,
    ) {
        let mut b = [0u8; HEADER];
        b[0] = REPLY;
        b[1] = self.opcode;
        b[2..4].copy_from_slice(&(key as u16).to_be_bytes());
        b[4] = extras as u8;
        b[6..8].copy_from_slice(&(status as u16).to_be_bytes());
        b[8..12].copy_from_slice(&(body as u32).to_be_bytes());
        b[12..16].copy_from_slice(&self.opaque);
        b[16..24].copy_from_slice(&cas.to_be_bytes());
        out.extend_from_slice(&b);
    }
    /// Appends an error reply with the status's own text.
    pub fn refuse(&self, out: &mut Vec<u8>, status: Status) {
        self.error(out, status, status.text());
    }
    pub fn error(&self, out: &mut Vec<u8>, status: Status, text: &str) {
        self.push(out, status, 0, 0, text.len(), 0);
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(opcode: u8, key: u16, extras: u8, body: u32) -> Result<Header, Broken> {
        let mut b = [0u8; HEADER];
        b[0] = REQUEST;
        b[1] = opcode;
        b[2..4].copy_from_slice(&key.to_be_bytes());
        b[4] = extras;
        b[8..12].copy_from_slice(&body.to_be_bytes());
        Header::read(&b)
    }

    #[test]
    fn lengths() {
        assert_eq!(header(0, 3, 0, 3).map(|h| h.value_len), Ok(0));
        assert!(matches!(
            header(0, 4, 0, 2),
            Err(Broken::Answer(_, Status::UnknownCommand))
        ));
        assert!(matches!(
            header(0, 0, 0, 0),
            Err(Broken::Answer(_, Status::Invalid))
        ));
        assert!(matches!(
            header(0, 251, 0, 251),
            Err(Broken::Answer(_, Status::Invalid))
        ));
        assert_eq!(header(1, 3, 8, 20).map(|h| h.value_len), Ok(9));
        assert!(matches!(
            header(1, 3, 0, 20),
            Err(Broken::Answer(_, Status::Invalid))
        ));
        assert_eq!(header(0x60, 1, 0, 2).map(|h| h.kind), Ok(Kind::Unknown));
        assert_eq!(header(0x20, 0, 0, 0).map(|h| h.kind), Ok(Kind::Sasl));
        assert!(matches!(
            header(0x21, 0, 0, 0),
            Err(Broken::Answer(_, Status::Invalid))
        ));
        assert_eq!(Header::read(&[0; HEADER]), Err(Broken::Magic));
    }
}
