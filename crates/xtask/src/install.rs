// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask install --prefix DIR`: builds the C libraries and puts them, their headers and
//! their pkg-config files in place. The steps that run other people's programs install them the
//! same way.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{Workspace, run};

/// A library of `bindings/`.
struct Library {
    /// Its folder there; the package is one of [`PACKAGES`].
    folder: &'static str,
    /// The name of its file, without `lib` and ending.
    name: &'static str,
    /// Whether there is also a static library.
    also_static: bool,
    /// Its header, below its own `include` and below the one of the prefix.
    header: &'static str,
}

/// The packages of the libraries, for cargo's line.
pub const PACKAGES: &str = "-p senko_c -p senko_ndbm";

const LIBRARIES: [Library; 2] = [
    Library {
        folder: "c",
        name: "senko_dbm",
        also_static: true,
        header: "senko_dbm.h",
    },
    Library {
        folder: "ndbm",
        name: "senko_ndbm",
        also_static: false,
        header: "senko/ndbm.h",
    },
];

/// Builds and installs.
pub fn install(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let [option, prefix] = args else {
        bail!("install takes --prefix and a folder");
    };
    if option != "--prefix" {
        bail!("install takes --prefix and a folder, not {option:?}");
    }
    // Users of pkg-config may be in any folder.
    let prefix = std::path::absolute(prefix).context("cannot find the folder")?;
    to(workspace, &prefix)?;
    Ok(true)
}

/// Builds, and installs to a folder.
pub fn to(workspace: &Workspace, prefix: &Path) -> Result<()> {
    let line = format!("build --release {PACKAGES}");
    if !run::show(&mut workspace.cargo(&line))?.ok {
        bail!("the libraries do not build");
    }
    built_to(workspace, prefix)
}

/// Installs libraries that are built to a folder.
pub fn built_to(workspace: &Workspace, prefix: &Path) -> Result<()> {
    for library in &LIBRARIES {
        library.install(workspace, prefix)?;
    }
    Ok(())
}

impl Library {
    fn install(&self, workspace: &Workspace, prefix: &Path) -> Result<()> {
        let source = workspace.root.join("bindings").join(self.folder);
        let built = workspace.target.join("release");
        let version = env!("CARGO_PKG_VERSION");
        let lib = prefix.join("lib");
        let whole = format!("lib{}.so.{version}", self.name);
        copy(
            &built.join(format!("libsenko_{}.so", self.folder)),
            &lib.join(&whole),
            0o755,
        )?;
        for link in ["so.0", "so"] {
            let link = lib.join(format!("lib{}.{link}", self.name));
            drop(std::fs::remove_file(&link));
            std::os::unix::fs::symlink(&whole, &link)
                .with_context(|| format!("cannot make {}", link.display()))?;
            tell!("installed {}", link.display());
        }
        if self.also_static {
            copy(
                &built.join(format!("libsenko_{}.a", self.folder)),
                &lib.join(format!("lib{}.a", self.name)),
                0o644,
            )?;
        }
        copy(
            &source.join("include").join(self.header),
            &prefix.join("include").join(self.header),
            0o644,
        )?;
        let pc = format!("{}.pc", self.name);
        let template = source.join("include").join(format!("{pc}.in"));
        let text = std::fs::read_to_string(&template)
            .with_context(|| format!("cannot read {}", template.display()))?
            .replace("@PREFIX@", &prefix.to_string_lossy())
            .replace("@VERSION@", version);
        write(&lib.join("pkgconfig").join(pc), text.as_bytes(), 0o644)
    }
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write(to, &bytes, mode)
}

/// Replaces a file at once: programs that use an older one keep it.
fn write(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let draft = PathBuf::from(format!("{}.new", to.display()));
    let made = to
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&draft, bytes))
        .and_then(|()| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&draft, mode)
        })
        .and_then(|()| std::fs::rename(&draft, to));
    made.with_context(|| format!("cannot write {}", to.display()))?;
    tell!("installed {}", to.display());
    Ok(())
}
