// SPDX-License-Identifier: Apache-2.0
//! Links the `librocksdb.so` of the folder that `SENKO_ROCKSDB` names, instead of the system's.

fn main() {
    println!("cargo::rerun-if-env-changed=SENKO_ROCKSDB");
    if let Ok(folder) = std::env::var("SENKO_ROCKSDB") {
        println!("cargo::rustc-link-search=native={folder}");
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
