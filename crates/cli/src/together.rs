// SPDX-License-Identifier: Apache-2.0
//! Options of `senko serve` that have no effect beside another one. Each pair is told at the start.
//! The table is `docs/cache/options-together.md`, and a test walks it. Pairs that contradict each
//! other are refused where the settings are made (`options.rs`, and `check` of the server).

use senko_server::settings::Settings;

use crate::options::ServeOptions;

/// Warnings about options that are given and do nothing.
pub fn without_effect(options: &ServeOptions) -> Vec<String> {
    let mut all = Vec::new();
    let mut pair = |given: bool, option: &str, beside: bool, other: &str| {
        if given && beside {
            all.push(format!("{option} has no effect {other}"));
        }
    };
    let no_flash = options.no_flash == Some(true);
    for (given, option) in [
        (options.region.is_some(), "--region"),
        (options.admission.is_some(), "--admission"),
        (options.flash_write_budget.is_some(), "--flash-write-budget"),
        (options.promote_after.is_some(), "--promote-after"),
        (options.no_reinsert == Some(true), "--no-reinsert"),
        (options.discard == Some(true), "--discard"),
    ] {
        pair(given, option, no_flash, "with --no-flash");
    }
    let no_evict = options.disable_evictions == Some(true);
    pair(options.policy.is_some(), "--policy", no_evict, "with -M");
    let no_socket = options.unix_socket.is_none();
    pair(
        options.unix_mask.is_some(),
        "--unix-mask",
        no_socket,
        "without --unix-socket",
    );
    all
}

/// What `-M` does to flash, if both are there.
pub fn unused_flash(settings: &Settings) -> Option<&'static str> {
    (settings.no_evict && !settings.flash.is_empty()).then_some(
        "with -M items stay in memory: flash takes none, and sets fail once memory is full",
    )
}
