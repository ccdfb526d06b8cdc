// SPDX-License-Identifier: Apache-2.0
//! The dependencies between crates have one direction, as in docs/architecture/overview.md. A new
//! one fails here, so that it is a decision.

use std::collections::BTreeSet;
use std::process::Command;

use crate::complain;

/// A crate, the crates of the workspace that it may use, and those only for its tests.
type Edges = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// The crates of the product: those below `crates/` and `bindings/`.
const PRODUCT: [Edges; 14] = rows! {
    "senko_io", &[], &["senko_workload"];
    "senko_workload", &[], &[];
    "senko_store", &["senko_io"], &["senko_workload"];
    "senko_dbm", &["senko_io"], &["senko_workload"];
    "senko_cache", &["senko_io"], &["senko_workload"];
    "senko_server", &["senko_io", "senko_cache"], &["senko_workload"];
    "senko_load", &["senko_io", "senko_workload"], &[];
    "senko_ssd", &["senko_io", "senko_workload"], &[];
    "senko_plan",
        &["senko_io", "senko_workload", "senko_cache", "senko_ssd", "senko_store", "senko_dbm"],
        &[];
    "senko",
        &["senko_plan", "senko_io", "senko_workload", "senko_cache", "senko_server",
            "senko_load", "senko_ssd", "senko_store", "senko_dbm"],
        &[];
    "senko_c", &["senko_io", "senko_dbm"], &[];
    "senko_ndbm", &["senko_io", "senko_dbm"], &[];
    "senko_python", &["senko_io", "senko_workload", "senko_dbm", "senko_store", "senko_ssd"], &[];
    "xtask", &[], &[];
};

/// The crates below `lab/`.
const LAB: [Edges; 3] = rows! {
    "senko_thesis", &["senko_io", "senko_store", "senko_workload"], &[];
    "senko_lab",
        &["senko_io", "senko_workload", "senko_cache", "senko_server", "senko_load",
            "senko_ssd", "senko_store", "senko_thesis", "senko_dbm", "senko_plan"],
        &[];
    "senko_rivals", &["senko_lab", "senko_workload"], &[];
};

#[test]
fn crates_use_only_those_below_them() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(crate::tree::root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        seen.insert(name.to_owned());
        let Some((_, uses, tests_use)) = PRODUCT.iter().chain(&LAB).find(|(n, _, _)| *n == name)
        else {
            complaints.push(format!("{name} is not in the table of {}", file!()));
            continue;
        };
        let manifest = package["manifest_path"]
            .as_str()
            .expect("a package has a manifest");
        let folder = manifest
            .rsplit('/')
            .nth(1)
            .expect("a manifest lies in a folder");
        if name != folder
            && name != format!("senko_{}", folder.replace('-', "_"))
            && ![("senko", "cli"), ("senko_lab", "experiments")].contains(&(name, folder))
        {
            complaints.push(format!("{name} lies in a folder named {folder}"));
        }
        let product = PRODUCT.iter().any(|(n, _, _)| *n == name);
        let beside = manifest.rsplit('/').nth(2).unwrap_or_default();
        let places: &[&str] = if product {
            &["crates", "bindings"]
        } else {
            &["lab"]
        };
        if !places.contains(&beside) {
            complaints.push(format!(
                "{name} lies in {beside}/, not in {}/",
                places.join("/ or ")
            ));
        }
        for dependency in package["dependencies"].as_array().expect("a list") {
            let on = dependency["name"]
                .as_str()
                .expect("a dependency has a name");
            let inside = dependency["path"].is_string();
            if product && LAB.iter().any(|(n, _, _)| *n == on) {
                complaints.push(format!("{name} is of the product and names {on}"));
            }
            let in_tests = dependency["kind"].as_str() == Some("dev");
            if inside && !uses.contains(&on) && !(in_tests && tests_use.contains(&on)) {
                complaints.push(format!("{name} may not use {on}"));
            }
        }
    }
    complaints.extend(
        PRODUCT
            .iter()
            .chain(&LAB)
            .filter(|(n, _, _)| !seen.contains(*n))
            .map(|(n, _, _)| format!("{n} is gone")),
    );
    complain("edges", complaints);
}
