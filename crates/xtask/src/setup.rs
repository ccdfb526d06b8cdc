// SPDX-License-Identifier: Apache-2.0
//! Installs the packages that the tests need, and reports each step: Debian packages (as root, or
//! through sudo), and a Python environment in `target/venv`. Packages that can't be installed are
//! listed, and tests that need them are skipped (with CI=true they fail).

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{self, installed, succeeds};
use crate::{Workspace, limits};

/// Installed and missing packages.
pub struct Setup {
    /// The Python of the environment, if it could be made.
    pub python: Option<PathBuf>,
    /// One sentence for each thing missing.
    pub missing: Vec<String>,
}

/// A Debian package, how to see that it is there, and what it is for.
struct Package {
    name: &'static str,
    present: fn() -> bool,
    needed_for: &'static str,
}

/// A row for each package: its name, whether it is there, and what it is for.
macro_rules! packages {
    ($($name:literal, $present:expr, $needed_for:literal;)*) => {
        [$(Package { name: $name, present: || $present, needed_for: $needed_for }),*]
    };
}

const PACKAGES: [Package; 23] = packages! {
    "memcached", installed("memcached"), "the transcripts' reference";
    "netcat-openbsd", installed("nc"), "the commands of the operator's guide";
    "libmemcached-tools", installed("memccapable"), "memccapable";
    "nutcracker", installed("nutcracker"), "the cluster test";
    "ruby-dalli", succeeds(Command::new("/usr/bin/ruby").args(["-rdalli", "-e1"])), "the tests with Dalli";
    "prometheus", installed("promtool"), "the checks of metrics and alert rules";
    "golang-go", installed("go") || Path::new("/usr/local/go/bin/go").exists(), "building memcached's exporter";
    "chromium", installed("chromium"), "the tests of the admin page and of the lab's report";
    "lintian", installed("lintian"), "the check of the Debian package";
    "dpkg-dev", installed("dpkg-shlibdeps"), "making the Debian package";
    "strace", installed("strace"), "the check of the unit's system calls";
    "python3-venv", has_venv(), "the Python environment";
    "libmemcached-dev", header("libmemcached/memcached.h"), "building pylibmc";
    "zlib1g-dev", header("zlib.h"), "building pylibmc";
    "g++", installed("g++"), "the C libraries' tests in C++";
    "pkg-config", installed("pkg-config"), "the ndbm library's tests";
    "perl", succeeds(Command::new("/usr/bin/perl").args(["-MNDBM_File", "-e1"])), "the ndbm library's tests";
    "ruby-dbm", succeeds(Command::new("/usr/bin/ruby").args(["-rdbm", "-e1"])), "the ndbm library's tests";
    "libpython3.11-testsuite", Path::new("/usr/lib/python3.11/test/test_dbm_ndbm.py").is_file(), "the ndbm library's tests";
    "libgdbm-compat-dev", header("ndbm.h"), "the ndbm library's tests";
    "db-util", installed("db_dump"), "the tests of the DBM's dumps";
    "gdbmtool", installed("gdbm_dump"), "the tests of the DBM's dumps";
    "lmdb-utils", installed("mdb_dump"), "the tests of the DBM's dumps";
};

fn header(name: &str) -> bool {
    Path::new("/usr/include").join(name).is_file()
}

fn has_venv() -> bool {
    succeeds(Command::new("python3").args(["-c", "import venv, ensurepip"]))
}

/// Sets the machine up.
pub fn setup(workspace: &Workspace) -> Result<Setup> {
    let mut missing = Vec::new();
    let wanted: Vec<&Package> = PACKAGES.iter().filter(|p| !(p.present)()).collect();
    if wanted.is_empty() {
        tell!("Debian packages: all there");
    } else {
        let names: Vec<&str> = wanted.iter().map(|p| p.name).collect();
        tell!("Debian packages to install: {}", names.join(" "));
        if let Err(error) = install(&names) {
            tell!("not installed: {error:#}");
        }
        for package in wanted.iter().filter(|p| !(p.present)()) {
            missing.push(format!(
                "the Debian package {} is missing: it is for {}",
                package.name, package.needed_for
            ));
        }
    }
    let python = match environment(workspace) {
        Ok(python) => Some(python),
        Err(error) => {
            missing.push(format!(
                "there is no Python environment for the client and end-to-end tests: {error:#}"
            ));
            None
        }
    };
    for line in &missing {
        tell!(
            "{}: {line}",
            if workspace.ci {
                "missing"
            } else {
                "will be skipped"
            }
        );
    }
    Ok(Setup { python, missing })
}

/// apt-get, with no service started: an own memcached on port 11211 is not what a test run should
/// leave behind.
const INSTALL: &str = r#"
set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Retries=3 update
apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
"#;

fn install(names: &[&str]) -> Result<()> {
    if !installed("apt-get") {
        anyhow::bail!("this is not Debian: there is no apt-get");
    }
    let mut command = if limits::is_root() {
        Command::new("sh")
    } else if succeeds(Command::new("sudo").args(["-n", "true"]))
        || (installed("sudo") && std::io::stdin().is_terminal())
    {
        tell!("as you are not root, this goes through sudo");
        let mut sudo = Command::new("sudo");
        sudo.arg("sh");
        sudo
    } else {
        anyhow::bail!(
            "you are not root, and sudo would ask for a password; run: sudo apt-get install {}",
            names.join(" ")
        );
    };
    let ran = run::show(command.args(["-c", INSTALL, "install"]).args(names))?;
    if !ran.ok {
        anyhow::bail!("apt-get failed, see above");
    }
    Ok(())
}

/// The files of Perl that its own tests of ndbm take, from Debian's source package: no other
/// package has them. They are fetched once, and no list of the system is changed.
pub fn perl_sources(workspace: &Workspace) -> Result<PathBuf> {
    const WANTED: [&str; 4] = [
        "ext/NDBM_File/t",
        "t/lib/dbmt_common.pl",
        "lib/dbm_filter_util.pl",
        "cpan/Memoize/t/tie_ndbm.t",
    ];
    let folder = workspace.target.join("perl-sources");
    let files = folder.join("perl");
    if files.is_dir() {
        return Ok(files);
    }
    drop(std::fs::remove_dir_all(&folder));
    for part in [
        "lists/partial",
        "cache/archives/partial",
        "parts",
        "perl.new",
    ] {
        std::fs::create_dir_all(folder.join(part))?;
    }
    let release = std::fs::read_to_string("/etc/os-release").context("this is not Debian")?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("this is not a release of Debian")?;
    let list = format!(
        "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: {name}\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    );
    std::fs::write(folder.join("parts/perl.sources"), list)?;
    let place = |option: &str, path: &str| format!("{option}={}", folder.join(path).display());
    let options = [
        "Acquire::Retries=3".to_owned(),
        "Dir::Etc::SourceList=/dev/null".to_owned(),
        place("Dir::Etc::SourceParts", "parts"),
        place("Dir::State::Lists", "lists"),
        place("Dir::Cache", "cache"),
        // As root it would become a user who may not be able to write here.
        "APT::Sandbox::User=root".to_owned(),
    ];
    for task in [&["update"][..], &["source", "--download-only", "perl"]] {
        let mut command = Command::new("apt-get");
        for option in &options {
            command.args(["-o", option]);
        }
        if !run::show(command.args(task).current_dir(&folder))?.ok {
            anyhow::bail!("apt-get could not fetch Perl's source package");
        }
    }
    let archive = std::fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| name.ends_with(".orig.tar.xz"))
        .context("Perl's source package has no archive")?;
    let mut tar = Command::new("tar");
    tar.args([
        "--strip-components=1",
        "--wildcards",
        "-C",
        "perl.new",
        "-xf",
    ]);
    tar.arg(archive)
        .args(WANTED.map(|path| format!("*/{path}")));
    if !run::show(tar.current_dir(&folder))?.ok {
        anyhow::bail!("Perl's source package has not the files that are wanted");
    }
    std::fs::rename(folder.join("perl.new"), &files)?;
    Ok(files)
}

/// Makes the Python environment, once for each content of the requirements.
fn environment(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target.join("venv");
    let python = folder.join("bin/python");
    let requirements = workspace.root.join("tests/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let stamp = folder.join("installed-requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted)
        && succeeds(Command::new(&python).arg("--version"))
    {
        tell!("Python environment: target/venv is up to date");
        return Ok(python);
    }
    tell!("Python environment: making target/venv with tests/requirements.txt");
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&workspace.target)?;
    // The python3 of the path may be a shim without venv; Debian's own is the one that python3-venv
    // serves.
    let made = ["python3", "/usr/bin/python3"]
        .iter()
        .any(|p| succeeds(Command::new(p).args(["-m", "venv"]).arg(&folder)));
    if !made {
        anyhow::bail!("python3 -m venv failed");
    }
    let ran = run::show(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--requirement"])
            .arg(&requirements),
    )?;
    if !ran.ok {
        anyhow::bail!("pip could not install tests/requirements.txt");
    }
    std::fs::write(&stamp, wanted)?;
    Ok(python)
}
