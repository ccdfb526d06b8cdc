// SPDX-License-Identifier: Apache-2.0
//! A plain connection to a server with TLS: two threads encrypt and decrypt all bytes. So tests
//! that were written for plain connections run over TLS.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::{ClientConfig, ClientConnection};

use super::client::{opened, shake};

/// Connects, and completes the handshake.
pub fn through(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<TcpStream> {
    let mut stream = opened(address, config)?;
    shake(&mut stream)?;
    let (mut link, socket) = stream.into_parts();
    link.set_buffer_limit(None);
    socket.set_read_timeout(None)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    far.set_nodelay(true)?;
    let link = Arc::new(Mutex::new(link));
    let (from, to) = (far.try_clone()?, socket.try_clone()?);
    let other = Arc::clone(&link);
    // They end with the connection.
    std::thread::spawn(move || cipher(from, to, &other));
    std::thread::spawn(move || decipher(socket, far, &link));
    Ok(near)
}

/// The test's bytes. Nobody else writes to the server, so records stay in order.
fn cipher(mut from: TcpStream, mut to: TcpStream, link: &Mutex<ClientConnection>) {
    let mut buffer = [0; 64 << 10];
    loop {
        let n = from.read(&mut buffer).unwrap_or(0);
        let mut sealed = Vec::new();
        {
            let mut link = link.lock().unwrap();
            match n {
                0 => link.send_close_notify(),
                n => link.writer().write_all(&buffer[..n]).unwrap(),
            }
            while link.wants_write() {
                link.write_tls(&mut sealed).unwrap();
            }
        }
        if to.write_all(&sealed).is_err() || n == 0 {
            return;
        }
    }
}

/// The server's bytes. Its end is passed on, announced or not.
fn decipher(mut from: TcpStream, mut to: TcpStream, link: &Mutex<ClientConnection>) {
    let mut buffer = [0; 64 << 10];
    loop {
        let n = from.read(&mut buffer).unwrap_or(0);
        let (mut plain, mut ended) = (Vec::new(), n == 0);
        {
            let mut link = link.lock().unwrap();
            let mut rest = &buffer[..n];
            while !rest.is_empty() {
                let taken = link.read_tls(&mut rest).unwrap_or(0);
                match link.process_new_packets() {
                    Ok(state) => {
                        plain.resize(plain.len() + state.plaintext_bytes_to_read(), 0);
                        let start = plain.len() - state.plaintext_bytes_to_read();
                        link.reader().read_exact(&mut plain[start..]).unwrap();
                        ended |= state.peer_has_closed();
                    }
                    Err(_) => ended = true,
                }
                if taken == 0 || ended {
                    break;
                }
            }
        }
        if to.write_all(&plain).is_err() || ended {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}
