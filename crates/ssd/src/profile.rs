// SPDX-License-Identifier: Apache-2.0
//! Profiles: all settings of a drive, as TOML.

mod schema; // the keys of a profile, and the messages for wrong ones

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::geometry::Geometry;
use crate::link::Link;
use crate::nand::{Endurance, SingleLevel, Timing};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    pub source: String,
    /// If this is a part of a larger drive: how many times larger the whole drive is; otherwise 1.
    #[serde(default = "whole")]
    pub scale: u32,
    /// The size that the host sees, in bytes. The rest of the flash is over-provisioning.
    pub user_bytes: u64,
    pub geometry: Geometry,
    pub timing: Timing,
    #[serde(default)]
    pub endurance: Endurance,
    /// The single-level mode of its blocks, if it has one.
    pub slc: Option<SingleLevel>,
    #[serde(default)]
    pub interface: Interface,
    #[serde(default)]
    pub link: Link,
    pub ftl: String,
    #[serde(default = "no_buffer")]
    pub buffer: String,
    /// RAM for the write buffer, in bytes.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// The most pages that have left the buffer and are being programmed although their write is
    /// already done. With 0 a write waits until they are on the flash.
    #[serde(default)]
    pub write_behind_pages: u32,
    /// The handling of a write that covers a part of a page.
    #[serde(default)]
    pub partial_pages: PartialPages,
}

fn whole() -> u32 {
    1
}

fn no_buffer() -> String {
    "none".to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Interface {
    /// One request after the other.
    Single,
    /// SATA's native command queuing.
    Ncq { depth: u32 },
    /// NVMe's queues. A request goes to the queue with the fewest commands.
    Nvme { queues: u32, depth: u32 },
}

impl Interface {
    /// The queues of a drive, and the requests that each accepts at once.
    pub fn queues_and_depth(self) -> (u32, u32) {
        match self {
            Self::Single => (1, 1),
            Self::Ncq { depth } => (1, depth),
            Self::Nvme { queues, depth } => (queues, depth),
        }
    }
}

impl Default for Interface {
    fn default() -> Self {
        Self::Ncq { depth: 32 }
    }
}

/// The handling of a write that covers a part of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartialPages {
    /// The rest of the page is read first, unless the buffer has it.
    #[default]
    ReadModifyWrite,
    /// It counts as a write of the whole page, as in FlashSim and the endurance paper.
    Whole,
}

/// A buffer of this size may be larger than its drive, as in a small one made for a test.
const SMALL: u64 = 1 << 30;
/// NVMe has at most so many queues, and commands in each.
const MOST_COMMANDS: u32 = 1 << 16;

/// The profile that is taken where none is named: a drive of today.
pub const DEFAULT: &str = "nvme-512gb";

/// Profiles that come with the simulator: name and text.
pub static BUILT_IN: &[(&str, &str)] = &[
    (DEFAULT, include_str!("../profiles/nvme-512gb.toml")),
    ("paper-1gb", include_str!("../profiles/paper-1gb.toml")),
    ("x25-m", include_str!("../profiles/x25-m.toml")),
    ("x25-e", include_str!("../profiles/x25-e.toml")),
    ("usb-stick", include_str!("../profiles/usb-stick.toml")),
    ("tlc-256gb", include_str!("../profiles/tlc-256gb.toml")),
    ("hy27-4gb", include_str!("../profiles/hy27-4gb.toml")),
];

impl Profile {
    /// The built-in profile of this name, or the profile in this file.
    ///
    /// # Errors
    /// If there is neither, or it is not a valid profile.
    pub fn find(name: &str) -> Result<Self, Error> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(text).map_err(|error| Error::Profile(format!("{name}: {error}")));
        }
        let path = Path::new(name);
        let missing = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        if path.metadata().is_err_and(missing) {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            return Err(Error::Profile(format!(
                "there is no profile and no file \"{name}\"; the profiles that come with senko are {}",
                names.join(", ")
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|reason| Error::File {
            path: path.to_owned(),
            reason,
        })?;
        Self::parse(&text).map_err(|error| Error::Profile(format!("{name}: {error}")))
    }

    /// A profile from TOML.
    ///
    /// # Errors
    /// If it is not a profile, or contradicts itself.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let table = schema::checked(text).map_err(Error::Profile)?;
        let profile = Self::deserialize(table)
            .map_err(|error| Error::Profile(format!("it is not a profile: {}", error.message())))?;
        profile.check()?;
        Ok(profile)
    }

    /// The same drive, of which one part in `scale` is simulated. Each plane has as many blocks
    /// fewer or more; the two that a layer keeps open and free are always there.
    ///
    /// # Errors
    /// If the part would be too small, or not of whole blocks.
    ///
    /// ```
    /// use senko_ssd::profile::Profile;
    /// let profile = Profile::find("nvme-512gb")?;
    /// let whole = profile.clone().scaled(1)?;
    /// assert_eq!((whole.scale, whole.user_bytes), (1, 64 * profile.user_bytes));
    /// assert_eq!(profile.scaled(64)?.geometry.blocks, 258);
    /// # Ok::<(), senko_ssd::Error>(())
    /// ```
    pub fn scaled(mut self, scale: u32) -> Result<Self, Error> {
        const KEPT: u64 = 2;
        let (was, now) = (u64::from(self.scale), u64::from(scale.max(1)));
        let blocks = u64::from(self.geometry.blocks).saturating_sub(KEPT) * was / now + KEPT;
        let page = u64::from(self.geometry.page_bytes);
        self.user_bytes = self.user_bytes / page * was / now * page;
        self.geometry.blocks = u32::try_from(blocks)
            .map_err(|_| Error::Profile(format!("scale {scale}: {blocks} blocks are too many")))?;
        self.scale = scale.max(1);
        let named = |error: Error| Error::Profile(format!("scale {scale}: {error}"));
        self.check().map_err(named)?;
        Ok(self)
    }

    pub fn user_pages(&self) -> u32 {
        (self.user_bytes / u64::from(self.geometry.page_bytes)) as u32
    }

    pub fn buffer_pages(&self) -> usize {
        (self.buffer_bytes / u64::from(self.geometry.page_bytes)) as usize
    }

    /// Refuses impossible values.
    ///
    /// # Errors
    /// If the profile contradicts itself.
    pub fn check(&self) -> Result<(), Error> {
        self.geometry.check()?;
        if self.user_bytes == 0 || self.user_bytes >= self.geometry.bytes() {
            return Err(Error::Profile(format!(
                "user_bytes is {}, and must be more than 0 and less than the flash's {}{}",
                self.user_bytes,
                self.geometry.bytes(),
                match self.scale {
                    1 => String::new(),
                    scale => format!(": both are one part in {scale} of the drive's (scale)"),
                }
            )));
        }
        if !self
            .user_bytes
            .is_multiple_of(u64::from(self.geometry.page_bytes))
        {
            return Err(Error::Profile(format!(
                "user_bytes is {}, which is not a multiple of the page's {} bytes",
                self.user_bytes, self.geometry.page_bytes
            )));
        }
        if self.buffer_bytes > self.user_bytes.max(SMALL) {
            return Err(Error::Profile(format!(
                "a write buffer of {} bytes is larger than its drive, which has {}",
                self.buffer_bytes, self.user_bytes
            )));
        }
        let (queues, depth) = self.interface.queues_and_depth();
        for (name, value) in [("queues", queues), ("depth", depth)] {
            if value > MOST_COMMANDS {
                return Err(Error::Profile(format!(
                    "{name} in [interface] is {value}, and must be at most {MOST_COMMANDS}"
                )));
            }
        }
        if self.scale == 0 {
            return Err(Error::Profile(
                "scale is 0, and must be at least 1".to_owned(),
            ));
        }
        if let Some(slc) = self.slc
            && !(2..=8).contains(&slc.bits)
        {
            return Err(Error::Profile(format!(
                "bits in [slc] is {}, and must be 2 to 8",
                slc.bits
            )));
        }
        self.link.check()?;
        if queues.min(depth) == 0 {
            return Err(Error::Profile(
                "an interface that takes no request".to_owned(),
            ));
        }
        if !self.timing.bus_ns_per_byte.is_finite() || self.timing.bus_ns_per_byte < 0.0 {
            return Err(Error::Profile(
                "bus_ns_per_byte must be at least 0".to_owned(),
            ));
        }
        Ok(())
    }
}
