// SPDX-License-Identifier: Apache-2.0
//! io_uring is refused by a seccomp filter, as in containers; in its own process.

use senko_io::{Backend, BackendChoice, EventLoop, LoopConfig};

use crate::support::{child, child_task, config, poll_until};

/// From now on the system call `number` fails with `errno` in this process.
pub fn forbid(number: libc::c_long, errno: i32) {
    let step = |code: u32, k: u32, jt, jf| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The system call's number is the first word that a filter sees.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            number as u32,
            0,
            1,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | errno as u32,
            0,
            0,
        ),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives on this stack, before it returns.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let done = libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        );
        assert_eq!(done, 0);
    }
}

#[test]
fn auto_falls_back_with_a_reason() {
    let Some(what) = child_task() else {
        for what in [
            "setup EPERM",
            "setup ENOSYS",
            "enter EPERM",
            "register EACCES",
        ] {
            let output = child("refusal::auto_falls_back_with_a_reason", what)
                .output()
                .unwrap();
            let out = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success(),
                "{what}: {out}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        return;
    };
    let (call, errno) = what.split_once(' ').unwrap();
    let number = match call {
        "setup" => libc::SYS_io_uring_setup,
        "enter" => libc::SYS_io_uring_enter,
        _ => libc::SYS_io_uring_register,
    };
    let errno = match errno {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        _ => libc::EACCES,
    };
    forbid(number, errno);
    let auto = LoopConfig {
        backend: BackendChoice::Auto,
        ..config(Backend::Posix)
    };
    let mut io = EventLoop::new(&auto).unwrap();
    assert_eq!(io.backend(), Backend::Posix);
    println!("{what}: {}", io.fallback_reason().unwrap());
    io.waker().wake();
    poll_until(&mut io, |events| !events.is_empty());
    let forced = LoopConfig {
        backend: BackendChoice::Uring,
        ..auto
    };
    let error = EventLoop::new(&forced).err().unwrap().to_string();
    assert!(error.starts_with("io_uring is not available: "), "{error}");
}

#[test]
fn auto_takes_io_uring_where_it_can() {
    if crate::support::uring_works() {
        let auto = LoopConfig {
            backend: BackendChoice::Auto,
            ..config(Backend::Uring)
        };
        let io = EventLoop::new(&auto).unwrap();
        assert_eq!((io.backend(), io.fallback_reason()), (Backend::Uring, None));
    }
}

#[test]
fn bad_sizes_are_told() {
    for (count, bytes) in [(0, 4096), (3, 4096), (1 << 16, 4096), (16, 0), (16, 5000)] {
        for backend in [Backend::Posix, Backend::Uring] {
            let config = LoopConfig {
                recv_buffers: count,
                recv_buffer_bytes: bytes,
                ..config(backend)
            };
            let error = EventLoop::new(&config).err().unwrap().to_string();
            println!("{error}");
        }
    }
}
