// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask python`: builds the wheel of `bindings/python` into `target/wheels`. The step
//! `python` of `cargo xtask test` installs it into a fresh environment, and runs its tests there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Workspace, run};

/// What a release needs of the requirements; tests need all of them.
const RELEASE: [&str; 2] = ["maturin", "mkdocs"];

/// An environment with all requirements, or with those of these names, without the wheel.
fn environment(workspace: &Workspace, only: &[&str]) -> Result<PathBuf> {
    let folder = workspace.target.join("python-venv");
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&workspace.target)?;
    // The python3 of the path has its own tests more often; Debian's has venv when that one has
    // not.
    let made = ["python3", "/usr/bin/python3"]
        .iter()
        .any(|p| run::succeeds(Command::new(p).args(["-m", "venv"]).arg(&folder)));
    if !made {
        bail!("python3 -m venv failed");
    }
    let python = folder.join("bin/python");
    let requirements = workspace.root.join("bindings/python/requirements.txt");
    if only.is_empty() {
        pip(&python, &[Path::new("--requirement"), &requirements])?;
        return Ok(python);
    }
    let all = std::fs::read_to_string(&requirements)?;
    let is_wanted = |line: &&str| {
        line.split("==")
            .next()
            .is_some_and(|name| only.contains(&name))
    };
    let wanted: Vec<&Path> = all.lines().filter(is_wanted).map(Path::new).collect();
    pip(&python, &wanted)?;
    Ok(python)
}

fn pip(python: &Path, what: &[&Path]) -> Result<()> {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet"]).args(what);
    if !run::show(&mut command)?.ok {
        bail!("pip could not install {what:?}");
    }
    Ok(())
}

/// Builds the wheel with a profile of cargo, and gives its path.
fn build(workspace: &Workspace, python: &Path, profile: &str) -> Result<PathBuf> {
    let wheels = workspace.target.join("wheels");
    drop(std::fs::remove_dir_all(&wheels));
    let built = run::show(
        Command::new(python)
            .args(["-m", "maturin", "build", "--locked", "--profile", profile])
            .arg("--out")
            .arg(&wheels)
            .current_dir(workspace.root.join("bindings/python")),
    )?;
    if !built.ok {
        bail!("maturin could not build the wheel");
    }
    let wheel = std::fs::read_dir(&wheels)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "whl"));
    wheel.with_context(|| format!("there is no wheel in {}", wheels.display()))
}

/// Builds wheel and source package, and gives the Python that did and the files.
pub fn release(workspace: &Workspace) -> Result<(PathBuf, Vec<PathBuf>)> {
    let python = environment(workspace, &RELEASE)?;
    let wheel = build(workspace, &python, "release")?;
    let folder = wheel.parent().context("a wheel is in a folder")?;
    let made = run::show(
        Command::new(&python)
            .args(["-m", "maturin", "sdist", "--out"])
            .arg(folder)
            .current_dir(workspace.root.join("bindings/python")),
    )?;
    if !made.ok {
        bail!("maturin could not pack the sources");
    }
    let files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    Ok((python, files.collect::<Result<_>>()?))
}

/// Installs a package into an environment that has nothing else, and uses it.
pub fn installs(workspace: &Workspace, package: &Path) -> Result<()> {
    const USE: &str =
        "import senko_flash.dbm, senko_flash.store, senko_flash.ssd as ssd; ssd.parts()";
    let folder = workspace.target.join("python-empty");
    drop(std::fs::remove_dir_all(&folder));
    if !run::succeeds(
        Command::new("/usr/bin/python3")
            .args(["-m", "venv"])
            .arg(&folder),
    ) {
        bail!("python3 -m venv failed");
    }
    let python = folder.join("bin/python");
    pip(&python, &[package])?;
    if !run::show(Command::new(&python).args(["-c", USE]))?.ok {
        bail!("{} does not work", package.display());
    }
    Ok(())
}

/// A Python that can make the site: the one of the last wheel, or a new one.
pub fn for_site(workspace: &Workspace) -> Result<PathBuf> {
    let python = workspace.target.join("python-venv/bin/python");
    match run::succeeds(Command::new(&python).args(["-c", "import mkdocs"])) {
        true => Ok(python),
        false => environment(workspace, &RELEASE),
    }
}

/// The task: builds the wheel, and says where it is.
pub fn wheel(workspace: &Workspace) -> Result<bool> {
    let python = environment(workspace, &[])?;
    tell!("built {}", build(workspace, &python, "release")?.display());
    Ok(true)
}

/// A Python that has the wheel installed. Its code checks itself, as that of all tests does, and is
/// built in half of the time.
pub fn installed(workspace: &Workspace) -> Result<PathBuf> {
    let python = environment(workspace, &[])?;
    let wheel = build(workspace, &python, "dev")?;
    pip(&python, &[&wheel])?;
    Ok(python)
}
