// SPDX-License-Identifier: Apache-2.0
//! Archives whose bytes depend on names, rights and content alone. The release calls it.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::package::succeed;

/// Packs a folder as `NAME.tar.gz` in `out`; inside, all lies below the folder `NAME`.
pub fn tar_gz(folder: &Path, name: &str, out: &Path) -> Result<()> {
    const SORTED: &str = r#"tar --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner --mode=go-w --exclude=./DEBIAN \
        --transform="s,^\./,$2/," -C "$1" -cf - $(cd "$1" && ls -A | sed 's,^,./,' | sort) \
        | gzip -9 -n > "$3""#;
    let archive = out.join(format!("{name}.tar.gz"));
    succeed(
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", SORTED, "bash"])
            .arg(folder)
            .arg(name)
            .arg(&archive),
    )?;
    tell!("packed {}", archive.display());
    Ok(())
}
