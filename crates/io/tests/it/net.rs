// SPDX-License-Identifier: Apache-2.0
//! Listening and connecting: addresses, stale sockets, access masks, error messages.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use senko_io::{Event, Listener, connect_tcp, connect_unix};

use crate::support::{Folder, address, config, event_loop, local, on_both, poll_until};

#[test]
fn two_loops_share_a_listener() {
    on_both(|backend| {
        let listener = local();
        let mut one = event_loop(&config(backend));
        let mut two = event_loop(&config(backend));
        one.listen(&listener).unwrap();
        two.listen(&listener).unwrap();
        let _client = connect_tcp(address(&listener)).unwrap();
        let mut events = Vec::new();
        while events.is_empty() {
            for io in [&mut one, &mut two] {
                io.poll(Some(std::time::Duration::from_millis(5)), &mut events)
                    .unwrap();
            }
        }
        // Accepted by one loop, adopted by the other.
        let Event::Accepted {
            stream,
            listener: 0,
        } = events.remove(0)
        else {
            panic!()
        };
        two.adopt(stream).unwrap();
    });
}

fn option(fd: &impl std::os::fd::AsRawFd, level: i32, name: i32) -> i32 {
    let (mut value, mut length) = (0, 4);
    // SAFETY: the kernel writes an int and its length, both on this stack.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &mut length,
        )
    };
    assert_eq!(done, 0);
    value
}

fn flags(fd: &impl std::os::fd::AsRawFd, which: i32) -> i32 {
    // SAFETY: takes no memory.
    unsafe { libc::fcntl(fd.as_raw_fd(), which) }
}

#[test]
fn accepted_and_connected_sockets_are_ready_for_a_loop() {
    on_both(|backend| {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = match Listener::tcp(address.parse().unwrap(), 10) {
                Ok(listener) => listener,
                Err(error) if address.starts_with('[') => {
                    println!("skipped: no IPv6: {error}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let mut address: std::net::SocketAddr = address.parse().unwrap();
            address.set_port(listener.local_port().unwrap());
            let mut io = event_loop(&config(backend));
            io.listen(&listener).unwrap();
            let client = connect_tcp(address).unwrap();
            let mut events = poll_until(&mut io, |events| !events.is_empty());
            let Event::Accepted { stream, .. } = events.remove(0) else {
                panic!()
            };
            for socket in [&client, &stream] {
                assert_eq!(option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
                assert_ne!(flags(socket, libc::F_GETFL) & libc::O_NONBLOCK, 0);
                assert_ne!(flags(socket, libc::F_GETFD) & libc::FD_CLOEXEC, 0);
            }
        }
    });
}

#[test]
fn a_taken_port_is_told() {
    let listener = local();
    let error = Listener::tcp(address(&listener), 10).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot listen on {}", address(&listener))),
        "{error}"
    );
    let free = address(&listener);
    drop(listener);
    let error = connect_tcp(free).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot connect to {free}")),
        "{error}"
    );
}

#[test]
fn unix_socket_files() {
    let folder = Folder::new();
    let path = folder.file("socket");
    // Stale: its listener is gone and did not remove it.
    drop(UnixListener::bind(&path).unwrap());
    for mask in [0o777, 0o700, 0o600] {
        let listener = Listener::unix(&path, mask, 10).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            mask
        );
        let other = listener.clone();
        drop(listener);
        connect_unix(&path).unwrap();
        let error = Listener::unix(&path, mask, 10).unwrap_err().to_string();
        assert!(error.ends_with("somebody listens there already"), "{error}");
        drop(other);
        assert!(!path.exists());
    }
    std::fs::write(&path, "precious").unwrap();
    let error = Listener::unix(&path, 0o700, 10).unwrap_err().to_string();
    assert!(error.contains("not a socket"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let long = folder.file(&"x".repeat(200));
    let error = Listener::unix(&long, 0o700, 10).unwrap_err().to_string();
    assert!(error.contains("at most 107 bytes"), "{error}");
    let error = Listener::unix(&folder.file("no/socket"), 0o700, 10)
        .unwrap_err()
        .to_string();
    assert!(error.contains("No such file"), "{error}");
}

/// Another server replaces the first at its path. The first one's drop leaves the other's file
/// alone.
#[test]
fn only_the_own_socket_file_is_removed() {
    let folder = Folder::new();
    let path = folder.file("socket");
    let first = Listener::unix(&path, 0o700, 10).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = Listener::unix(&path, 0o700, 10).unwrap();
    drop(first);
    connect_unix(&path).unwrap();
    drop(second);
    assert!(!path.exists());
}

/// The mode of the socket used to be set by its name, after bind. In a folder of another user, that
/// user could put a link there in between, and root changed the mode of the link's target.
#[test]
fn a_link_in_place_of_a_socket_changes_no_mode() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let folder = Folder::new();
    let (path, link, victim) = (
        folder.file("sock"),
        folder.file("link"),
        folder.file("victim"),
    );
    std::fs::write(&victim, "").unwrap();
    std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600)).unwrap();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let _ = std::os::unix::fs::symlink(&victim, &link);
                if path.exists() {
                    let _ = std::fs::rename(&link, &path);
                }
            }
        });
        for _ in 0..300 {
            let _ = Listener::unix(&path, 0o777, 10);
            let _ = std::fs::remove_file(&path);
        }
        end.store(true, Ordering::Relaxed);
    });
    let mode = std::fs::metadata(&victim).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
