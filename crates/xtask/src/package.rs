// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask package`: a Debian package of the binary, with its unit, an example configuration,
//! man pages, completions and documents. It is laid out by hand and built by `dpkg-deb`; the files
//! are in `contrib`. A release also has an RPM package of the same files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

mod rpm; // the same files for other distributions

use crate::{Workspace, run};

/// The package to build, and its destination.
struct Wanted {
    /// A binary that is built already.
    binary: Option<PathBuf>,
    out: PathBuf,
    version: String,
    /// Whom the package names as its maintainer: `Name <address>`.
    maintainer: String,
}

/// The maintainer where nobody said who builds the package. No mail goes to `.invalid` (RFC 2606),
/// so this is nobody's address.
const AUTHORS: (&str, &str) = ("The authors of Senko", "senko@packages.invalid");

/// Files that are copied as they are: from below `contrib`, to below the root, with this mode.
const FILES: [(&str, &str, u32); 9] = rows! {
    "debian/senko.toml", "etc/senko/senko.toml", 0o644;
    "systemd/senko.service", "lib/systemd/system/senko.service", 0o644;
    "systemd/senko.socket", "lib/systemd/system/senko.socket", 0o644;
    "systemd/senko.service.d/raw-devices.conf", "usr/share/doc/senko/examples/raw-devices.conf",
        0o644;
    "systemd/memcached.service.d/senko.conf",
        "usr/share/doc/senko/examples/memcached.service.d/senko.conf", 0o644;
    "container/seccomp.json", "usr/share/doc/senko/examples/seccomp.json", 0o644;
    "debian/copyright", "usr/share/doc/senko/copyright", 0o644;
    "prometheus/senko.rules.yml", "usr/share/doc/senko/examples/senko.rules.yml", 0o644;
    "grafana/senko.json", "usr/share/doc/senko/examples/grafana.json", 0o644;
};
/// Where a shell looks for a completion: the file that is made, and its place.
const COMPLETIONS: [(&str, &str); 3] = rows! {
    "senko.bash", "usr/share/bash-completion/completions/senko";
    "_senko", "usr/share/zsh/vendor-completions/_senko";
    "senko.fish", "usr/share/fish/vendor_completions.d/senko.fish";
};
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package, and prints its path.
pub fn package(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let wanted = parse(workspace, args)?;
    let stage = staged(workspace, &wanted)?;
    debian(&wanted, &stage)?;
    fs::remove_dir_all(&stage)?;
    Ok(true)
}

/// Builds the packages of a release, and leaves the folder with the files.
pub fn packages(workspace: &Workspace, out: &Path) -> Result<PathBuf> {
    let out = ["--out".to_owned(), out.display().to_string()];
    let wanted = parse(workspace, &out)?;
    let stage = staged(workspace, &wanted)?;
    debian(&wanted, &stage)?;
    rpm::build(&stage, &wanted.version, &wanted.out)?;
    Ok(stage)
}

/// Lays the package's files out.
fn staged(workspace: &Workspace, wanted: &Wanted) -> Result<PathBuf> {
    let binary = match &wanted.binary {
        Some(path) => path.clone(),
        None => {
            let build = "build --release --locked -p senko";
            if !run::show(&mut workspace.cargo(build))?.ok {
                bail!("the release build failed");
            }
            workspace.target.join("release/senko")
        }
    };
    fs::create_dir_all(&wanted.out)?;
    let stage = wanted.out.join("stage");
    let _ = fs::remove_dir_all(&stage);
    let contrib = workspace.root.join("contrib");
    copy(&binary, &stage.join("usr/bin/senko"), 0o755)?;
    succeed(
        Command::new("strip")
            .args(["--strip-unneeded"])
            .arg(stage.join("usr/bin/senko")),
    )?;
    for (from, to, mode) in FILES {
        copy(&contrib.join(from), &stage.join(to), mode)?;
    }
    texts(workspace, wanted, &stage)?;
    documents(workspace, &stage)?;
    control(wanted, &contrib, &stage)?;
    open_to_all(&stage)?;
    Ok(stage)
}

fn debian(wanted: &Wanted, stage: &Path) -> Result<()> {
    let arch = run::output(Command::new("dpkg").arg("--print-architecture"))?;
    let name = format!("senko_{}_{}.deb", wanted.version, arch.trim());
    let package = wanted.out.join(name);
    succeed(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(stage)
            .arg(&package),
    )?;
    tell!("{}", package.display());
    Ok(())
}

/// The version that the manifest names.
pub fn version(workspace: &Workspace) -> Result<String> {
    let manifest = fs::read_to_string(workspace.root.join("Cargo.toml"))?;
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    Ok(version.context("Cargo.toml names no version")?.to_owned())
}

fn parse(workspace: &Workspace, args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted {
        binary: None,
        out: workspace.target.join("package"),
        version: version(workspace)?,
        maintainer: maintainer(
            std::env::var("DEBFULLNAME").ok(),
            std::env::var("DEBEMAIL").ok(),
        )?,
    };
    for pair in args.chunks(2) {
        let [option, value] = pair else {
            bail!("{} takes a value", pair[0]);
        };
        match option.as_str() {
            "--binary" => wanted.binary = Some(value.into()),
            "--out" => wanted.out = value.into(),
            "--version" => wanted.version.clone_from(value),
            _ => bail!("package takes --binary, --out and --version, not {option:?}"),
        }
    }
    Ok(wanted)
}

/// Whom Debian's own variables name, with the authors for what they leave out.
fn maintainer(name: Option<String>, address: Option<String>) -> Result<String> {
    let given = |value: Option<String>| value.filter(|value| !value.trim().is_empty());
    let name = given(name).unwrap_or_else(|| AUTHORS.0.to_owned());
    let address = given(address).unwrap_or_else(|| AUTHORS.1.to_owned());
    let plain = |text: &str| !text.contains(|c: char| c.is_control() || "<>".contains(c));
    if !plain(&name) {
        bail!("DEBFULLNAME is a name, not {name:?}");
    }
    if !plain(&address) || !address.contains('@') || address.contains(char::is_whitespace) {
        bail!("DEBEMAIL is a mail address, not {address:?}");
    }
    Ok(format!("{} <{address}>", name.trim()))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let folder = to.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Gives all folders and files of the package the usual rights, whatever the builder's umask is:
/// the user senko has to read the settings in `/etc/senko`.
fn open_to_all(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let runs = meta.is_dir() || meta.permissions().mode() & 0o100 != 0;
    if !meta.is_symlink() {
        fs::set_permissions(
            path,
            fs::Permissions::from_mode(if runs { 0o755 } else { 0o644 }),
        )?;
    }
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            open_to_all(&entry?.path())?;
        }
    }
    Ok(())
}

pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    match status.success() {
        true => Ok(()),
        false => bail!("{:?} failed", command.get_program()),
    }
}

/// README and documents, below the names by which they and the program's messages call each other.
fn documents(workspace: &Workspace, stage: &Path) -> Result<()> {
    let doc = stage.join("usr/share/doc/senko");
    copy(
        &workspace.root.join("README.md"),
        &doc.join("README.md"),
        0o644,
    )?;
    succeed(
        Command::new("cp")
            .args(["-r", "--no-preserve=mode"])
            .arg(workspace.root.join("docs"))
            .arg(&doc),
    )
}

/// Packs a file as Debian's policy asks, without a time in it.
fn gzip(path: &Path) -> Result<()> {
    succeed(Command::new("gzip").args(["-9", "-n", "-f"]).arg(path))
}

/// Man pages, completions, the changelog.
fn texts(workspace: &Workspace, wanted: &Wanted, stage: &Path) -> Result<()> {
    let made = wanted.out.join("manual");
    let _ = fs::remove_dir_all(&made);
    succeed(
        Command::new(stage.join("usr/bin/senko"))
            .arg("manual")
            .arg(&made),
    )?;
    for page in fs::read_dir(made.join("man"))? {
        let page = page?;
        let to = stage.join("usr/share/man/man1").join(page.file_name());
        copy(&page.path(), &to, 0o644)?;
        gzip(&to)?;
    }
    for (from, to) in COMPLETIONS {
        copy(&made.join("completions").join(from), &stage.join(to), 0o644)?;
    }
    fs::remove_dir_all(&made)?;
    let doc = stage.join("usr/share/doc/senko");
    copy(
        &workspace.root.join("CHANGELOG.md"),
        &doc.join("NEWS.md"),
        0o644,
    )?;
    let changelog = doc.join("changelog");
    let date = run::output(Command::new("date").args(["-R", "-u", "-d", "2026-01-01"]))?;
    fs::write(
        &changelog,
        format!(
            "senko ({}) stable; urgency=medium\n\n  * The changes are in NEWS.md.\n\n -- {}  {date}",
            wanted.version, wanted.maintainer
        ),
    )?;
    fs::set_permissions(&changelog, fs::Permissions::from_mode(0o644))?;
    gzip(&changelog)
}

/// `DEBIAN/`: what dpkg reads and runs.
fn control(wanted: &Wanted, contrib: &Path, stage: &Path) -> Result<()> {
    let debian = stage.join("DEBIAN");
    for script in SCRIPTS {
        copy(
            &contrib.join("debian").join(script),
            &debian.join(script),
            0o755,
        )?;
    }
    fs::write(debian.join("conffiles"), "/etc/senko/senko.toml\n")?;
    let arch = run::output(Command::new("dpkg").arg("--print-architecture"))?;
    let kib = run::output(
        Command::new("du")
            .args(["-sk", "--exclude=DEBIAN"])
            .arg(stage),
    )?;
    let kib = kib.split_whitespace().next().unwrap_or("0");
    let text = format!(
        "Package: senko\nVersion: {}\nArchitecture: {}\nMaintainer: {}\n\
         Installed-Size: {kib}\nDepends: {}, adduser, init-system-helpers (>= 1.52)\nSection: net\nPriority: optional\n\
         Description: memcached-compatible cache server over DRAM and flash\n\
         \x20Senko speaks memcached's protocols and keeps items that leave DRAM on flash, in\n\
         \x20files or on raw devices. It restarts warm, keeps to a budget of writes, and\n\
         \x20serves metrics. The package has the tools for its stores and simulator as well.\n",
        wanted.version,
        arch.trim(),
        wanted.maintainer,
        libraries(wanted, stage)?,
    );
    fs::write(debian.join("control"), text)?;
    let sums = run::output(
        Command::new("sh")
            .args(["-c", "find . -path ./DEBIAN -prune -o -type f -print0 | sort -z | xargs -0 md5sum | sed 's, ./, ,'"])
            .current_dir(stage),
    )?;
    fs::write(debian.join("md5sums"), sums)?;
    for name in ["conffiles", "control", "md5sums"] {
        fs::set_permissions(debian.join(name), fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// The packages of the shared libraries that the binary is linked with, as Debian's own tool tells
/// them.
fn libraries(wanted: &Wanted, stage: &Path) -> Result<String> {
    let folder = wanted.out.join("shlibs");
    fs::create_dir_all(folder.join("debian"))?;
    fs::write(
        folder.join("debian/control"),
        "Source: senko\n\nPackage: senko\nArchitecture: any\n",
    )?;
    let binary = fs::canonicalize(stage.join("usr/bin/senko"))?;
    let told = run::output(
        Command::new("dpkg-shlibdeps")
            .arg("-O")
            .arg(format!("-e{}", binary.display()))
            .current_dir(&folder),
    )?;
    fs::remove_dir_all(&folder)?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(line.context("dpkg-shlibdeps names no library")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maintainer_is_whom_debians_variables_name() {
        let of = |name: &str, address: &str| maintainer(Some(name.into()), Some(address.into()));
        let usual = maintainer(None, None).expect("it is fixed");
        assert_eq!(usual, "The authors of Senko <senko@packages.invalid>");
        assert_eq!(of("", " ").expect("they are not given"), usual);
        let given = of("Cache Team", "cache@example.org").expect("it is an address");
        assert_eq!(given, "Cache Team <cache@example.org>");
        for (name, address) in [
            ("a <b>", "a@b"),
            ("a", "b"),
            ("a\nDepends: b", "a@b"),
            ("a", "a b@c"),
        ] {
            assert!(of(name, address).is_err(), "{name:?} {address:?}");
        }
    }

    /// A builder with umask 077 made a package whose `/etc/senko` the server could not read.
    #[test]
    fn a_package_has_the_usual_rights_whatever_the_umask() {
        let dir = std::env::temp_dir().join(format!("senko-stage-{}", std::process::id()));
        fs::create_dir_all(dir.join("etc/senko")).expect("made");
        let files = [("etc/senko/senko.toml", 0o600), ("etc/run", 0o700)];
        let set = |path: &str, mode| {
            fs::set_permissions(dir.join(path), fs::Permissions::from_mode(mode)).expect("ours");
        };
        for (file, mode) in files {
            fs::write(dir.join(file), "").expect("made");
            set(file, mode);
        }
        set("etc", 0o700);
        open_to_all(&dir).expect("ours");
        let mode = |path: &str| {
            let meta = fs::metadata(dir.join(path)).expect("there");
            meta.permissions().mode() & 0o777
        };
        let modes = ["", "etc", "etc/senko", "etc/senko/senko.toml", "etc/run"].map(mode);
        assert_eq!(modes, [0o755, 0o755, 0o755, 0o644, 0o755]);
        fs::remove_dir_all(&dir).expect("ours");
    }
}
