// SPDX-License-Identifier: Apache-2.0
//! The software bill of materials: every crate that is built into the programs and libraries of a
//! release, with its version, licence and checksum, as CycloneDX. The release calls it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{Workspace, run};

/// The packages that a release is made of.
const SHIPPED: [&str; 4] = ["senko", "senko_c", "senko_ndbm", "senko_python"];

/// The bill as JSON.
pub fn bill(workspace: &Workspace, version: &str) -> Result<String> {
    let told = run::output(&mut workspace.cargo("metadata --format-version 1 --locked"))?;
    let told: Value = serde_json::from_str(&told).context("cargo metadata is not JSON")?;
    let lock = std::fs::read_to_string(workspace.root.join("Cargo.lock"))?;
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "senko", "version": version } },
        "components": components(&told, &checksums(&lock)),
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// From name and version to the checksum.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let of = |line: &str| {
                let value = line.strip_prefix(name)?.strip_prefix(" = \"")?;
                Some(value.strip_suffix('"')?.to_owned())
            };
            package.lines().find_map(of)
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            sums.insert((name, version), sum);
        }
    }
    sums
}

/// The crates that the shipped ones are built from: not those that only tests need.
fn components(told: &Value, sums: &BTreeMap<(String, String), String>) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut packages = BTreeMap::new();
    for package in list(&told["packages"]) {
        packages.insert(text(&package["id"]), package);
    }
    let mut nodes = BTreeMap::new();
    for node in list(&told["resolve"]["nodes"]) {
        nodes.insert(text(&node["id"]), node);
    }
    let shipped = |id: &&String| SHIPPED.contains(&packages[*id]["name"].as_str().unwrap_or(""));
    let mut queue: Vec<String> = packages.keys().filter(shipped).cloned().collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = queue.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for below in list(&nodes.get(&id).unwrap_or(&Value::Null)["deps"]) {
            let built_in = |kind: &Value| kind["kind"] != "dev";
            if list(&below["dep_kinds"]).iter().any(built_in) {
                queue.push(text(&below["pkg"]));
            }
        }
    }
    let mut components: Vec<Value> = Vec::new();
    for id in &seen {
        let package = &packages[id];
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": "library",
            "name": name,
            "version": version,
            "licenses": [{ "expression": text(&package["license"]).replace('/', " OR ") }],
        });
        if let Some(sum) = sums.get(&(name.clone(), version.clone())) {
            component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        components.push(component);
    }
    components.sort_by_key(|of| (text(&of["name"]), text(&of["version"])));
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_has_what_is_built_in_and_not_what_tests_need() {
        let package = |id: &str| json!({ "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let dep = |pkg: &str, kind: Value| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] });
        let told = json!({
            "packages": [package("senko"), package("libc"), package("proptest"), package("lab")],
            "resolve": { "nodes": [
                { "id": "senko", "deps": [dep("libc", Value::Null), dep("proptest", json!("dev"))] },
                { "id": "lab", "deps": [dep("proptest", Value::Null)] },
            ] },
        });
        let lock =
            "version = 4\n\n[[package]]\nname = \"libc\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n";
        let components = components(&told, &checksums(lock));
        let names: Vec<&str> = components
            .iter()
            .filter_map(|of| of["name"].as_str())
            .collect();
        assert_eq!(names, ["libc", "senko"]);
        assert_eq!(components[0]["hashes"][0]["content"], "ab");
        assert_eq!(
            components[0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
    }
}
