// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask release`: everything that a release has, in one folder, with checksums.
//!
//! The task runs itself again with an environment that makes the bytes the same wherever the tree
//! lies: a target folder of its own, paths mapped to fixed ones, and the commit's time for files.

mod archive; // tar files whose bytes depend on the content alone
mod bill; // the list of what is built in, for scanners
mod site; // the documents as a site

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Workspace, install, package, python, run};

/// Set in the second process.
const TIME: &str = "SOURCE_DATE_EPOCH";
/// Targets whose binary is added if rustup has them and their linker is installed: Rust's name,
/// the linker, and how it is told to cargo and to the C parts.
const OTHERS: [(&str, &str); 2] = [
    ("x86_64-unknown-linux-musl", "musl-gcc"),
    ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc"),
];

/// Starts the second process.
pub fn release(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let root = &workspace.root;
    let time = run::output(
        Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(root),
    )?;
    let target = workspace.target.join("reproducible");
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let maps = [
        (&target, "/senko/target"),
        (root, "/senko"),
        (&home, "/cargo"),
    ];
    let flags = |option: &str| {
        let of = maps
            .iter()
            .map(|(from, to)| format!("{option}={}={to}", from.display()));
        of.collect::<Vec<_>>().join(" ")
    };
    let c = flags("-ffile-prefix-map");
    let mut again = Command::new(std::env::current_exe()?);
    again.arg("release-into").args(args).current_dir(root);
    again
        .env(TIME, time.trim())
        .env("CARGO_TARGET_DIR", &target);
    again.env("RUSTFLAGS", flags("--remap-path-prefix"));
    again
        .env("CFLAGS", &c)
        .env("CXXFLAGS", &c)
        .env("TZ", "UTC")
        .env("LC_ALL", "C.UTF-8");
    Ok(again.status()?.success())
}

/// Makes everything.
pub fn into(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let out = match args {
        [] => workspace.target.join("dist"),
        [option, folder] if option == "--out" => std::path::absolute(folder)?,
        _ => bail!("release takes --out and a folder"),
    };
    // An older release must not stay beside the new one.
    drop(fs::remove_dir_all(&out));
    fs::create_dir_all(&out)?;
    let work = workspace.target.join("release-work");
    drop(fs::remove_dir_all(&work));
    fs::create_dir_all(&work)?;
    let version = package::version(workspace)?;
    let host = host()?;
    let name = |of: &str| format!("senko-{version}-{of}");

    tell!("== the program, for {host}");
    let stage = package::packages(workspace, &out)?;
    archive::tar_gz(&stage, &name(&host), &out)?;
    fs::remove_dir_all(&stage)?;
    for (target, linker) in OTHERS {
        other(workspace, target, linker, &work, &out, &name(target))?;
    }

    tell!("== the C libraries");
    let libraries = work.join("libraries");
    install::to(workspace, &libraries)?;
    relocate(&libraries)?;
    archive::tar_gz(&libraries, &name(&format!("c-{host}")), &out)?;

    tell!("== the Python package");
    let (python, files) = python::release(workspace)?;
    for file in files {
        let name = file.file_name().context("a file has a name")?;
        match name.to_string_lossy().strip_suffix(".tar.gz") {
            Some(sources) => archive::tar_gz(&sources_of(&file, sources, &work)?, sources, &out)?,
            None => fs::copy(&file, out.join(name)).map(drop)?,
        }
    }

    tell!("== the documents");
    let site = site::pages(workspace, &python, &work)?;
    site::reference(workspace, &site)?;
    archive::tar_gz(&site, &name("docs"), &out)?;
    fs::write(out.join("NOTES.md"), notes(workspace, &version)?)?;
    fs::write(
        out.join(name("sbom.cdx.json")),
        bill::bill(workspace, &version)?,
    )?;

    let sums = run::output(
        Command::new("sh")
            .args(["-c", "sha256sum *"])
            .current_dir(&out),
    )?;
    fs::write(out.join("SHA256SUMS"), &sums)?;
    tell!("\n{sums}\nthe release is in {}", out.display());
    Ok(true)
}

/// `cargo xtask site`: the documents with the reference.
pub fn documents(workspace: &Workspace) -> Result<bool> {
    let site = pages(workspace)?;
    site::reference(workspace, &site)?;
    tell!("{}", site.join("index.html").display());
    Ok(true)
}

/// The documents alone, whose dead links are an error.
pub fn pages(workspace: &Workspace) -> Result<PathBuf> {
    let work = workspace.target.join("documents");
    drop(fs::remove_dir_all(&work));
    fs::create_dir_all(&work)?;
    site::pages(workspace, &python::for_site(workspace)?, &work)
}

/// Makes a release twice, compares the bytes, and installs what pip installs.
pub fn check(workspace: &Workspace) -> Result<bool> {
    let folders = ["release-1", "release-2"].map(|name| workspace.target.join(name));
    for folder in &folders {
        if !release(
            workspace,
            &["--out".to_owned(), folder.display().to_string()],
        )? {
            return Ok(false);
        }
    }
    let sums = |folder: &PathBuf| fs::read_to_string(folder.join("SHA256SUMS"));
    let (first, second) = (sums(&folders[0])?, sums(&folders[1])?);
    for (one, other) in first.lines().zip(second.lines()) {
        if one != other {
            tell!("differs: {one}\n     and: {other}");
        }
    }
    let wheel = |name: &str| name.ends_with(".whl");
    let sources = |name: &str| name.starts_with("senko_flash") && name.ends_with(".tar.gz");
    for file in fs::read_dir(&folders[0])? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        if wheel(&name) || sources(&name) {
            python::installs(workspace, &file.path())?;
        }
    }
    Ok(first == second)
}

/// The target that this machine builds for.
fn host() -> Result<String> {
    let told = run::output(Command::new("rustc").arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// The binary for another target, if it can be built here.
fn other(
    workspace: &Workspace,
    target: &str,
    linker: &str,
    work: &Path,
    out: &Path,
    name: &str,
) -> Result<()> {
    let have = run::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let std = Path::new(have.trim())
        .join("lib/rustlib")
        .join(target)
        .join("lib");
    if !std.is_dir() || !run::installed(linker) {
        tell!("skipped: {target} needs `rustup target add {target}` and {linker}");
        return Ok(());
    }
    tell!("== the program, for {target}");
    let cargo = format!(
        "CARGO_TARGET_{}_LINKER",
        target.to_uppercase().replace('-', "_")
    );
    let cc = format!("CC_{}", target.replace('-', "_"));
    let line = format!("build --release --locked -p senko --target {target}");
    let mut build = workspace.cargo(&line);
    if !run::show(build.env(cargo, linker).env(cc, linker))?.ok {
        bail!("senko does not build for {target}");
    }
    let folder = work.join(target);
    fs::create_dir_all(folder.join("bin"))?;
    let binary = folder.join("bin/senko");
    fs::copy(workspace.target.join(target).join("release/senko"), &binary)?;
    let strip = linker.strip_suffix("gcc").filter(|of| of.contains("linux"));
    package::succeed(Command::new(format!("{}strip", strip.unwrap_or_default())).arg(&binary))?;
    for file in ["LICENSE", "README.md"] {
        fs::copy(workspace.root.join(file), folder.join(file))?;
    }
    archive::tar_gz(&folder, name, out)
}

/// Unpacks what maturin packed. Its order of files is random, and its workspace names a default
/// member that is not in it, so that nothing would build.
fn sources_of(file: &Path, name: &str, work: &Path) -> Result<PathBuf> {
    package::succeed(
        Command::new("tar")
            .arg("-xzf")
            .arg(file)
            .arg("-C")
            .arg(work),
    )?;
    let folder = work.join(name);
    let manifest = folder.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("default-members"));
    fs::write(&manifest, lines.collect::<Vec<_>>().join("\n") + "\n")?;
    Ok(folder)
}

/// Makes installed libraries work in any folder, and takes what only debuggers read out of them.
fn relocate(prefix: &Path) -> Result<()> {
    for file in fs::read_dir(prefix.join("lib/pkgconfig"))? {
        let path = file?.path();
        let text = fs::read_to_string(&path)?;
        let text = text.replace(&prefix.display().to_string(), "${pcfiledir}/../..");
        fs::write(&path, text)?;
    }
    for file in fs::read_dir(prefix.join("lib"))? {
        let path = file?.path();
        if path.is_file() && !path.is_symlink() {
            package::succeed(Command::new("strip").args(["-g", "-D"]).arg(&path))?;
        }
    }
    Ok(())
}

/// What changed: the version's part of CHANGELOG.md, or the unreleased one.
fn notes(workspace: &Workspace, version: &str) -> Result<String> {
    let all = fs::read_to_string(workspace.root.join("CHANGELOG.md"))?;
    part(&all, version)
        .or_else(|| part(&all, "Unreleased"))
        .with_context(|| format!("CHANGELOG.md has neither {version} nor Unreleased"))
        .map(|text| format!("# Senko {version}\n\n{text}\n"))
}

fn part(all: &str, heading: &str) -> Option<String> {
    let mut lines = all.lines();
    lines.find(|line| {
        line.strip_prefix("## ")
            .is_some_and(|rest| rest.starts_with(heading))
    })?;
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    Some(lines.join("\n").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_a_versions_part_of_the_changelog() {
        let all = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (May)\n\n### Store\n- more\n\n## 0.1.0\n";
        assert_eq!(part(all, "Unreleased").as_deref(), Some("- new"));
        assert_eq!(part(all, "0.2.0").as_deref(), Some("### Store\n- more"));
        assert_eq!(part(all, "0.3.0"), None);
    }
}
