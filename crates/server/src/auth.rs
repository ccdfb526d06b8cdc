// SPDX-License-Identifier: Apache-2.0
//! Passwords: reads password files, and checks a name and a password.
//!
//! One file guards the ascii protocol (memcached's `-Y`), one the binary protocol (`-S`). Both have
//! a line `user:password` for each user. The server reads them at start, and again on SIGHUP.
//! Sessions ask [`Auth::check`] (`session/login.rs`).
//!
//! - (AUTH-1) A file that can't be read, or has a bad line or no user, changes nothing while the
//!   server runs.
//! - (AUTH-2) A check compares with every user, and with all bytes of each, so that its duration
//!   reveals nothing.
//! - (AUTH-3) No text made here contains a part of a password, neither `Debug` output nor an error.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use subtle::{Choice, ConstantTimeEq};

use crate::settings::{Dialect, Settings};
use crate::small_file;

/// Users that count in the ascii protocol's file, as in memcached. Further lines are ignored.
pub const ASCII_USERS: usize = 8;
/// Most users of the binary protocol's file.
pub const SASL_USERS: usize = 64;
/// Longest line of a password file, in bytes, without its end.
pub const LONGEST_LINE: usize = 254;

/// A name or password, padded with zeros, so that all take equally long to compare.
#[derive(Clone)]
struct Word {
    len: u64,
    bytes: [u8; LONGEST_LINE + 2],
}

impl Word {
    /// `None` if it is empty or longer than a line: such a text is never a name or password.
    fn new(text: &[u8]) -> Option<Word> {
        if text.is_empty() || text.len() > LONGEST_LINE {
            return None;
        }
        let mut bytes = [0; LONGEST_LINE + 2];
        bytes[..text.len()].copy_from_slice(text);
        let len = text.len() as u64;
        Some(Word { len, bytes })
    }

    fn is(&self, other: &Word) -> Choice {
        self.len.ct_eq(&other.len) & self.bytes.ct_eq(&other.bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Of `-Y`: each line is a user, at most [`ASCII_USERS`]. The password is all behind the colon.
    Ascii,
    /// Of `-S`: lines without a user are skipped, such as comments and empty ones. A second colon
    /// ends the password.
    Sasl,
}

/// The users of a password file.
///
/// ```
/// use senko_server::auth::{Form, Users};
/// let users = Users::read(b"alice:secret\nbob:pass word\n", Form::Ascii).unwrap();
/// assert!(users.check(b"alice", b"secret") && !users.check(b"alice", b"pass word"));
/// let error = Users::read(b"alice", Form::Ascii).unwrap_err();
/// assert_eq!(error, "line 1 has no colon after the user's name");
/// ```
#[derive(Clone)]
pub struct Users(Vec<(Word, Word)>);

impl Users {
    /// Reads the users of a file's bytes. A name ends at the first colon. An empty name or password
    /// is ignored.
    ///
    /// # Errors
    /// One clause: it names a bad line, or says that there is no user.
    pub fn read(text: &[u8], form: Form) -> Result<Users, String> {
        let most = match form {
            Form::Ascii => ASCII_USERS,
            Form::Sasl => SASL_USERS,
        };
        let mut users = Vec::new();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let lines = text.split(|&b| b == b'\n').enumerate();
        let are_users = |line: &[u8]| form == Form::Ascii || !line.starts_with(b"#");
        for (index, line) in lines.filter(|(_, line)| are_users(line)) {
            let number = index + 1;
            let end = line.iter().position(|&b| b == b'\r' || b == 0);
            let line = &line[..end.unwrap_or(line.len())];
            if text.is_empty() || users.len() == most || form == Form::Ascii && index == most {
                break;
            }
            let Some(colon) = memchr::memchr(b':', line) else {
                match form {
                    Form::Ascii => {
                        return Err(format!("line {number} has no colon after the user's name"));
                    }
                    Form::Sasl => continue,
                }
            };
            if line.len() > LONGEST_LINE {
                let len = line.len();
                return Err(format!(
                    "line {number} has {len} bytes, and {LONGEST_LINE} is the most"
                ));
            }
            let (user, password) = (&line[..colon], &line[colon + 1..]);
            let password = match form {
                Form::Ascii => password,
                Form::Sasl => password.split(|&b| b == b':').next().unwrap_or(password),
            };
            users.extend(Word::new(user).zip(Word::new(password)));
        }
        match users.is_empty() {
            true => Err("there is no user with a password in it".to_owned()),
            false => Ok(Users(users)),
        }
    }

    /// Whether a user of this name has this password (AUTH-2).
    pub fn check(&self, user: &[u8], password: &[u8]) -> bool {
        let (Some(user), Some(password)) = (Word::new(user), Word::new(password)) else {
            return false;
        };
        let mut found = Choice::from(0);
        for (name, secret) in &self.0 {
            found |= name.is(&user) & secret.is(&password);
        }
        found.into()
    }

    #[allow(clippy::len_without_is_empty)] // there is none without users
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// AUTH-3: shows the number of users, not their names.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.0.len())
    }
}

/// A password file, and its contents at the last reading.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    form: Form,
    users: RwLock<Users>,
}

impl Source {
    fn open(path: &Path, form: Form) -> Result<Source, String> {
        Ok(Source {
            path: path.to_path_buf(),
            form,
            users: RwLock::new(read_file(path, form)?),
        })
    }
}

fn read_file(path: &Path, form: Form) -> Result<Users, String> {
    let name = path.display();
    let text = small_file::read(path)
        .map_err(|error| format!("the password file {name} cannot be read: {error}"))?;
    Users::read(&text, form).map_err(|why| format!("the password file {name} is refused: {why}"))
}

/// The password files of a server. [`Default`]: no file, so no password is required.
#[derive(Debug, Default)]
pub struct Auth {
    ascii: Option<Source>,
    sasl: Option<Source>,
}

impl Auth {
    /// Reads the files that the settings name.
    pub fn open(settings: &Settings) -> Result<Auth, String> {
        let open = |path: &Option<PathBuf>, form| {
            path.as_deref()
                .map(|path| Source::open(path, form))
                .transpose()
        };
        Ok(Auth {
            ascii: open(&settings.auth_file, Form::Ascii)?,
            sasl: open(&settings.sasl_file, Form::Sasl)?,
        })
    }

    /// Whether any protocol requires a password.
    pub fn is_on(&self) -> bool {
        self.ascii.is_some() || self.sasl.is_some()
    }

    /// The only protocol that a connection with passwords may speak: the one that has a file.
    pub fn dialect(&self) -> Option<Dialect> {
        match (&self.ascii, &self.sasl) {
            (Some(_), None) => Some(Dialect::Ascii),
            (None, Some(_)) => Some(Dialect::Binary),
            _ => None,
        }
    }

    /// Whether user and password are valid for this protocol.
    pub fn check(&self, dialect: Dialect, user: &[u8], password: &[u8]) -> bool {
        let source = match dialect {
            Dialect::Ascii => &self.ascii,
            Dialect::Binary => &self.sasl,
        };
        source.as_ref().is_some_and(|source| {
            let users = source.users.read().unwrap_or_else(PoisonError::into_inner);
            users.check(user, password)
        })
    }

    /// Reads the files again (AUTH-1): for each, its path, and and the number of users, or why the
    /// old users stay.
    pub fn reload(&self) -> Vec<(PathBuf, Result<usize, String>)> {
        let sources = self.ascii.iter().chain(&self.sasl);
        let again = |source: &Source| {
            let users = read_file(&source.path, source.form)?;
            let count = users.len();
            *source.users.write().unwrap_or_else(PoisonError::into_inner) = users;
            Ok(count)
        };
        sources
            .map(|source| (source.path.clone(), again(source)))
            .collect()
    }
}

/// The name and password of a SASL PLAIN message: `[authorization identity] NUL name NUL password`.
pub(crate) fn plain(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.split(|&b| b == 0);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        // Nobody may act as another user.
        (Some(other), Some(user), Some(password), None) if other.is_empty() || other == user => {
            Some((user, password))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_memcached_reads_them() {
        let read = |text: &[u8]| Users::read(text, Form::Ascii);
        let users = read(b"a:1\r\nb:two words\nc:x:y\n:none\nd:\ne:5").unwrap();
        assert!(users.check(b"a", b"1") && users.check(b"b", b"two words"));
        assert!(users.check(b"c", b"x:y") && users.check(b"e", b"5"));
        assert_eq!(users.len(), 4, "an empty name or password is nobody's");
        assert!(!users.check(b"", b"none") && !users.check(b"d", b""));
        assert!(!users.check(b"a", b"1\0") && !users.check(b"a", b"11"));
        assert!(read(b"a:1\n\nb:2\n").is_err());
    }

    /// A file that a tool had emptied before it wrote it anew used to be taken, so nobody could log
    /// in.
    #[test]
    fn a_file_without_users_is_refused() {
        for text in [&b""[..], b"\n", b":none\nd:\n"] {
            assert!(Users::read(text, Form::Ascii).is_err());
            assert!(Users::read(text, Form::Sasl).is_err());
        }
        assert!(Users::read(b"# a:b\n\n", Form::Sasl).is_err());
    }

    /// A comment in the file of `-S` used to prevent the start.
    #[test]
    fn lines_of_sasl_without_a_user_are_skipped() {
        let text = b"# who:may\n\na:1:more\nnobody\n\r\nb:2\n";
        let users = Users::read(text, Form::Sasl).unwrap();
        assert_eq!(users.len(), 2);
        assert!(users.check(b"a", b"1") && users.check(b"b", b"2"));
        assert!(!users.check(b"a", b"1:more") && !users.check(b"# who", b"may"));
    }

    #[test]
    fn the_ninth_user_is_left_out() {
        let text: String = (1..=9).map(|n| format!("u{n}:p\n")).collect();
        let users = Users::read(text.as_bytes(), Form::Ascii).unwrap();
        assert!(users.check(b"u8", b"p") && !users.check(b"u9", b"p"));
    }

    #[test]
    fn no_text_holds_a_password() {
        let long = format!("name:{}\n", "secret".repeat(50));
        let error = Users::read(long.as_bytes(), Form::Ascii).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
        let error = Users::read(b"secret\n", Form::Ascii).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
        let users = Users::read(b"name:secret\n", Form::Ascii).unwrap();
        assert_eq!(format!("{users:?}"), "Users(1)");
    }

    #[test]
    fn plain_messages() {
        assert_eq!(plain(b"\0u\0p"), Some((&b"u"[..], &b"p"[..])));
        assert_eq!(plain(b"u\0u\0p"), Some((&b"u"[..], &b"p"[..])));
        assert_eq!(plain(b"root\0u\0p"), None);
        assert_eq!(plain(b"\0u\0p\0"), None);
        assert_eq!(plain(b"u\0p"), None);
        assert_eq!(plain(b""), None);
    }
}
