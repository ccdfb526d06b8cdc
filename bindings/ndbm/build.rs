// SPDX-License-Identifier: Apache-2.0
//! Cargo runs this before the build: the shared library carries the name by which programs find it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsenko_ndbm.so.0");
}
