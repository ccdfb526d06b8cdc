// SPDX-License-Identifier: Apache-2.0
//! Listening and connecting.
//!
//! A [`Listener`] is shared by all loops: each accepts on the same descriptor. Accepted sockets
//! inherit TCP_NODELAY and their congestion control from it, so accepting costs no further system
//! call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The name of a listening Unix socket. The last drop of its [`Listener`] removes it.
#[derive(Clone, Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Removes it now. By then, somebody else's socket may have the path. Only ours is removed.
    pub fn remove(&self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| meta.dev() == self.device && meta.ino() == self.inode);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    port: Option<u16>,
    file: Option<SocketFile>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

/// A bound, listening, non-blocking socket. It is `Send`; `Clone` shares it between loops.
#[derive(Clone, Debug)]
pub struct Listener {
    shared: Arc<Shared>,
}

impl Listener {
    /// Listens on TCP with SO_REUSEADDR. Port 0 means any free port ([`Listener::local_port`]).
    ///
    /// # Errors
    /// The system's error, with the address in its text.
    pub fn tcp(address: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let context = |error: io::Error| named(error, format_args!("cannot listen on {address}"));
        let family = if address.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let fd = socket(family).map_err(context)?;
        set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR).map_err(context)?;
        set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY).map_err(context)?;
        if address.ip().is_loopback() {
            drop_congestion_control(&fd);
        }
        if address.is_ipv6() {
            // So 0.0.0.0 and [::] can be used side by side.
            set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).map_err(context)?;
        }
        let (name, length) = socket_address(&address);
        // SAFETY: `name` holds `length` bytes of an address of the socket's family.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) })
            .map_err(context)?;
        keep_alive(&fd).map_err(context)?;
        listen(&fd, backlog).map_err(context)?;
        let port = bound_port(&fd).map_err(context)?;
        Ok(Listener {
            shared: Arc::new(Shared {
                fd,
                port: Some(port),
                file: None,
            }),
        })
    }

    /// Listens on a Unix socket, replacing a stale one; `mask` is the access mask, like memcached's
    /// `-a`. The path is removed on the last drop.
    ///
    /// # Errors
    /// The system's error, with the path in its text. An existing file that is not a socket, or a
    /// socket on which somebody listens, is not touched.
    pub fn unix(path: &Path, mask: u32, backlog: u32) -> io::Result<Listener> {
        let context =
            |error: io::Error| named(error, format_args!("cannot listen on {}", path.display()));
        let (name, length) = unix_address(path).map_err(context)?;
        remove_stale(path).map_err(context)?;
        let fd = socket(libc::AF_UNIX).map_err(context)?;
        // The umask makes the mode, so the socket never has more rights than requested, and no
        // later call has to trust the name: in a folder of another user, a link may be there by
        // then. Until it is set back, files of other threads may get fewer rights than usual, or
        // more, but none that the socket has not. A server has no other thread yet that makes
        // files.
        let unwanted = !mask as libc::mode_t & 0o777;
        // Two listeners made at once would exchange their masks.
        static UMASK: Mutex<()> = Mutex::new(());
        let alone = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: takes no memory.
        let usual = unsafe { libc::umask(unwanted) };
        // SAFETY: `name` holds `length` bytes of a Unix address.
        let bound = check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) });
        // SAFETY: takes no memory.
        unsafe { libc::umask(usual) };
        drop(alone);
        bound.map_err(context)?;
        let meta = std::fs::symlink_metadata(path).map_err(context)?;
        if !meta.file_type().is_socket() {
            let text = "something else took its place at once";
            return Err(context(io::Error::other(text)));
        }
        listen(&fd, backlog).map_err(|error| {
            let _ = std::fs::remove_file(path);
            context(error)
        })?;
        let file = Some(SocketFile {
            path: path.to_path_buf(),
            device: meta.dev(),
            inode: meta.ino(),
        });
        Ok(Listener {
            shared: Arc::new(Shared {
                fd,
                port: None,
                file,
            }),
        })
    }

    /// A socket that listens already, passed by a service manager; it is made non-blocking.
    ///
    /// # Errors
    /// If the descriptor is not a listening stream socket.
    pub fn inherited(fd: OwnedFd) -> io::Result<Listener> {
        let number = |option| get_number(&fd, option).unwrap_or(0);
        if number(libc::SO_ACCEPTCONN) == 0 || number(libc::SO_TYPE) != libc::SOCK_STREAM {
            let text = "it is not a stream socket that listens";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = std::net::TcpListener::from(fd);
        listener.set_nonblocking(true)?;
        // For a Unix socket the standard library returns no such address.
        let port = listener.local_addr().ok().map(|address| address.port());
        let fd = OwnedFd::from(listener);
        if port.is_some() {
            set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
            keep_alive(&fd)?;
        }
        Ok(Listener {
            shared: Arc::new(Shared {
                fd,
                port,
                file: None,
            }),
        })
    }

    /// The bound TCP address; `None` for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        let fd = self.shared.fd.try_clone().ok()?;
        std::net::TcpListener::from(fd).local_addr().ok()
    }

    /// The bound TCP port.
    pub fn local_port(&self) -> Option<u16> {
        self.shared.port
    }

    /// The name of a Unix socket, for a process that ends without a drop.
    pub fn file(&self) -> Option<SocketFile> {
        self.shared.file.clone()
    }

    /// The descriptor's number, as a name for the socket.
    pub fn number(&self) -> u64 {
        self.fd() as u64
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.shared.fd.as_raw_fd()
    }
}

/// Loopback has no congestion to control, so its sockets use the cheapest congestion control;
/// accepted sockets inherit it. The system's own choice may pace every segment by the clock, as BBR
/// does. If the system refuses it, its own choice stays.
fn drop_congestion_control(fd: &OwnedFd) {
    let name = b"reno";
    // SAFETY: the kernel reads as many bytes as `name` has.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
}

/// Connects (blocking), then sets the socket non-blocking with TCP_NODELAY, ready for
/// [`crate::EventLoop::adopt`].
///
/// # Errors
/// The system's error, with the address in its text.
pub fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let connect = || {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let stream = OwnedFd::from(stream);
        if address.ip().is_loopback() {
            drop_congestion_control(&stream);
        }
        Ok(stream)
    };
    connect().map_err(|error| named(error, format_args!("cannot connect to {address}")))
}

/// Connects to a Unix socket, as [`connect_tcp`].
///
/// # Errors
/// The system's error, with the path in its text.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let connect = || {
        let stream = UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        Ok(OwnedFd::from(stream))
    };
    connect().map_err(|error| named(error, format_args!("cannot connect to {}", path.display())))
}

/// Makes a socket receive what is in its buffer, and then the end.
pub(crate) fn end_input(fd: RawFd) {
    // A peer that has left already is the only failure.
    // SAFETY: takes no memory; the caller's table holds the descriptor open.
    unsafe { libc::shutdown(fd, libc::SHUT_RD) };
}

/// Ends both directions: operations that wait on the socket end at once.
pub(crate) fn end(fd: RawFd) {
    // SAFETY: a descriptor in, no memory.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// The same kind of error, with the attempted action before its text.
fn named(error: io::Error, what: std::fmt::Arguments<'_>) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn socket(family: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: makes a new descriptor and touches nothing else.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A peer that was silent for this many seconds is probed. Then come the seconds between two
/// probes, and the number of unanswered probes after which the connection counts as broken. The
/// system's default of two hours keeps slots for clients that are long gone.
const KEEP_ALIVE: [(libc::c_int, libc::c_int); 3] = [
    (libc::TCP_KEEPIDLE, 60),
    (libc::TCP_KEEPINTVL, 15),
    (libc::TCP_KEEPCNT, 4),
];

/// Makes the kernel notice peers that vanished silently. Accepted sockets inherit it.
fn keep_alive(fd: &OwnedFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE)?;
    for (option, value) in KEEP_ALIVE {
        set_number(fd, libc::IPPROTO_TCP, option, value)?;
    }
    Ok(())
}

fn set_option(fd: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    set_number(fd, level, option, 1)
}

/// A number of the socket layer.
fn get_number(fd: &OwnedFd, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `value`.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

fn set_number(
    fd: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option's value is an int that lives on this stack.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            length,
        )
    })
    .map(drop)
}

fn listen(fd: &OwnedFd, backlog: u32) -> io::Result<()> {
    let backlog = backlog.min(i32::MAX as u32) as libc::c_int;
    // SAFETY: `fd` is an open socket.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

fn socket_address(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: an address of zeros is valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let start = &raw mut storage;
    let length = match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than, and aligned for, every address type.
            unsafe { start.cast::<libc::sockaddr_in>().write(name) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { start.cast::<libc::sockaddr_in6>().write(name) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

fn unix_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: an address of zeros is valid.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    name.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    let reason = if bytes.is_empty() {
        "the path is empty".to_string()
    } else if bytes.len() >= name.sun_path.len() {
        format!(
            "a Unix socket's path has at most {} bytes, this one {}",
            name.sun_path.len() - 1,
            bytes.len()
        )
    } else {
        for (to, from) in name.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        return Ok((name, size_of::<libc::sockaddr_un>() as libc::socklen_t));
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Removes a socket file that nobody listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !meta.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket is in the way",
        ));
    }
    let (name, length) = unix_address(path)?;
    let fd = socket(libc::AF_UNIX)?;
    // SAFETY: `name` holds `length` bytes of a Unix address.
    match check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const name).cast(), length) }) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // The socket does not block, so a full backlog answers "try again". Then somebody listens
        // too.
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "somebody listens there already",
        )),
    }
}

fn bound_port(fd: &OwnedFd) -> io::Result<u16> {
    // SAFETY: an address of zeros is valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&storage) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of the storage.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut storage).cast(), &mut length) })?;
    let start = &raw const storage;
    let port = match i32::from(storage.ss_family) {
        // SAFETY: the family says which address type the kernel wrote.
        libc::AF_INET => unsafe { (*start.cast::<libc::sockaddr_in>()).sin_port },
        // SAFETY: as above.
        _ => unsafe { (*start.cast::<libc::sockaddr_in6>()).sin6_port },
    };
    Ok(u16::from_be(port))
}
