// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask python`: builds the wheel of `bindings/python` into `target/wheels`. The step
//! `python` of `cargo xtask test` installs it into a fresh environment, and runs its tests there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Workspace, run};

/// An environment with what builds the wheel and what tests it, without the wheel.
fn environment(workspace: &Workspace) -> Result<PathBuf> {
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
    pip(&python, &[Path::new("--requirement"), &requirements])?;
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

/// Builds the wheel, and gives its path.
fn build(workspace: &Workspace, python: &Path) -> Result<PathBuf> {
    let wheels = workspace.target.join("wheels");
    drop(std::fs::remove_dir_all(&wheels));
    let built = run::show(
        Command::new(python)
            .args(["-m", "maturin", "build", "--release", "--locked", "--out"])
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

/// The task: builds the wheel, and says where it is.
pub fn wheel(workspace: &Workspace) -> Result<bool> {
    let python = environment(workspace)?;
    tell!("built {}", build(workspace, &python)?.display());
    Ok(true)
}

/// A Python that has the wheel installed.
pub fn installed(workspace: &Workspace) -> Result<PathBuf> {
    let python = environment(workspace)?;
    let wheel = build(workspace, &python)?;
    pip(&python, &[&wheel])?;
    Ok(python)
}
