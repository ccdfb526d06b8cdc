// SPDX-License-Identifier: Apache-2.0
//! Options of `senko serve` that have no effect together with another option. A start warns about
//! each pair. The table is `docs/cache/options-together.md`, which a test checks. Contradicting
//! pairs are refused when the settings are made (`options.rs`, and `check` of the server).

use crate::options::ServeOptions;

/// Warnings about given options without an effect.
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
        (options.stream_over.is_some(), "--stream-over"),
        (options.stall.is_some(), "--stall"),
        (options.no_reinsert == Some(true), "--no-reinsert"),
        (options.sort_small == Some(true), "--sort-small"),
        (options.discard == Some(true), "--discard"),
        (options.spin_us.is_some(), "--spin-us"),
        (options.flash_rated_writes.is_some(), "--flash-rated-writes"),
    ] {
        pair(given, option, no_flash, "with --no-flash");
    }
    let no_evict = options.disable_evictions == Some(true);
    for (given, option) in [
        (options.admission.is_some(), "--admission"),
        (options.stream_over.is_some(), "--stream-over"),
        (options.no_reinsert == Some(true), "--no-reinsert"),
        (options.sort_small == Some(true), "--sort-small"),
    ] {
        pair(given, option, no_evict && !no_flash, "with -M");
    }
    // Without flash, no item leaves DRAM for it.
    let stays = no_evict && no_flash;
    pair(options.policy.is_some(), "--policy", stays, "with -M");
    let no_fill = options.fill.fill_from.is_none();
    let fill = &options.fill;
    for (given, option) in [
        (fill.fill_rate.is_some(), "--fill-rate"),
        (fill.fill_user.is_some(), "--fill-user"),
        (fill.fill_password_file.is_some(), "--fill-password-file"),
        (fill.fill_tls == Some(true), "--fill-tls"),
        (fill.fill_tls_ca.is_some(), "--fill-tls-ca"),
        (fill.fill_tls_name.is_some(), "--fill-tls-name"),
        (fill.fill_tls_cert.is_some(), "--fill-tls-cert"),
    ] {
        pair(given, option, no_fill, "without --fill-from");
    }
    let no_socket = options.unix_socket.is_none();
    pair(
        options.unix_mask.is_some(),
        "--unix-mask",
        no_socket,
        "without --unix-socket",
    );
    all
}
