// SPDX-License-Identifier: Apache-2.0
//! Large values on their way from flash to a worker's connections: which of them read ahead, and
//! which lack frames (`crate::window`).

use super::Core;
use super::conns::Conn;
use super::disk::Disk;
use crate::connection::ConnKey;

#[derive(Default)]
pub(super) struct Streams {
    /// Connections whose values wait for frames.
    starved: Vec<ConnKey>,
    /// Whether one of them has no piece under way.
    dry: bool,
    /// Whether any waited when they were last looked at.
    looked: bool,
}

impl Streams {
    /// Before a connection is sent more: its value reads ahead, unless its reader is slow. FLOW-3:
    /// no answer after a slow batch may hold frames. False: the value can't be continued, and no
    /// byte may follow.
    pub fn go_on(
        &mut self,
        core: &mut Core,
        disk: &mut Disk,
        at: ConnKey,
        conn: &mut Conn,
    ) -> bool {
        if conn.sending && conn.slow_since != 0 {
            if conn.session.replies().pages() > 0 {
                conn.session.replies().spill();
                disk.frames_freed(true);
            }
        } else if conn.session.replies().window().is_some() {
            let entry = conn.entry.clone();
            let mut ctx = core.ctx(at, (entry.as_deref(), conn.fd));
            if conn.session.read_ahead(&mut ctx) {
                self.starved.push(at);
                // WINDOW-4: the answers behind it can't leave before it.
                let replies = conn.session.replies();
                if replies.window().is_some_and(|window| window.is_dry()) {
                    self.dry = true;
                    if replies.pages() > 0 {
                        replies.spill();
                        disk.frames_freed(true);
                    }
                }
            }
        }
        let broken = conn.session.is_broken();
        core.stats.streams_broken += u64::from(broken);
        !broken
    }

    /// The connections whose values wait for frames, to try again; `None` if there are none, now
    /// and at the last call.
    pub fn take_starved(&mut self) -> Option<Vec<ConnKey>> {
        self.dry = false;
        let before = std::mem::replace(&mut self.looked, !self.starved.is_empty());
        (before || self.looked).then(|| std::mem::take(&mut self.starved))
    }

    /// Whether one of those that tried again has no piece under way.
    pub fn has_dry(&self) -> bool {
        self.dry
    }
}
