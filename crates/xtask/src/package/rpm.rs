// SPDX-License-Identifier: Apache-2.0
//! An RPM package of the files that the Debian package has. The release calls it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::succeed;
use crate::run;

/// The scripts do what those in `contrib/debian` do. `1` is an upgrade in `postun` and `preun`'s
/// `0` a removal.
const SPEC: &str = "\
Name: senko
Version: @VERSION@
Release: 1
Summary: memcached-compatible cache server over DRAM and flash
License: Apache-2.0
AutoReqProv: no
Requires: glibc, libgcc, shadow-utils
%define __os_install_post %{nil}
%define _build_id_links none
%description
Senko speaks memcached's protocols and keeps items that leave DRAM on flash, in
files or on raw devices. It restarts warm, keeps to a budget of writes, and
serves metrics. The package has the tools for its stores and simulator as well.
%install
cp -a '@STAGE@/.' %{buildroot}/
rm -rf %{buildroot}/DEBIAN
mkdir -p %{buildroot}/usr/lib %{buildroot}/var/lib/senko
mv %{buildroot}/lib/systemd %{buildroot}/usr/lib/ && rmdir %{buildroot}/lib
mkdir -p %{buildroot}/usr/share/zsh/site-functions
mv %{buildroot}/usr/share/zsh/vendor-completions/_senko %{buildroot}/usr/share/zsh/site-functions/
rmdir %{buildroot}/usr/share/zsh/vendor-completions
%pre
getent passwd senko > /dev/null || useradd --system --user-group --home-dir /var/lib/senko \\
    --no-create-home --shell /sbin/nologin --comment 'Senko cache server' senko
%post
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
%preun
if [ $1 -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now senko.service senko.socket || :
fi
%postun
if [ $1 -ge 1 ] && [ -d /run/systemd/system ]; then systemctl try-restart senko.service || :; fi
%files
%config(noreplace) /etc/senko/senko.toml
%attr(0700, senko, senko) %dir /var/lib/senko
/usr/bin/senko
/usr/lib/systemd/system/senko.*
/usr/share/*
";

/// Builds the package, where `rpmbuild` is installed.
pub fn build(stage: &Path, version: &str, out: &Path) -> Result<()> {
    if !run::installed("rpmbuild") {
        tell!("skipped: the RPM package needs rpmbuild (Debian: apt-get install rpm)");
        return Ok(());
    }
    let top = out.join("rpm");
    fs::create_dir_all(&top)?;
    let spec = top.join("senko.spec");
    let text = SPEC.replace("@VERSION@", version);
    fs::write(&spec, text.replace("@STAGE@", &stage.display().to_string()))?;
    // Nothing of this machine or of the time is in the package.
    let defines = [
        format!("_topdir {}", top.display()),
        format!("_rpmdir {}", out.display()),
        "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm".to_owned(),
        "_buildhost localhost".to_owned(),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
        "_binary_payload w9.gzdio".to_owned(),
    ];
    let mut command = Command::new("rpmbuild");
    for define in &defines {
        command.args(["--define", define]);
    }
    succeed(command.args(["--quiet", "-bb"]).arg(&spec))?;
    fs::remove_dir_all(&top)?;
    Ok(())
}
