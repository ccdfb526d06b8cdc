// SPDX-License-Identifier: Apache-2.0
//! A store that was opened by a relative path stays where it is when the process changes its
//! folder.

use std::path::Path;

use senko_store::{Options, Store};

use crate::support::Folder;

/// Set in the process that changes its folder: the folder of the test.
const CHILD: &str = "SENKO_STORE_FOLDER_TEST";

fn options() -> Options {
    Options {
        block_bytes: 1 << 20,
        ..Options::default()
    }
}

fn go(folder: &Path) {
    std::env::set_current_dir(folder).unwrap();
}

/// A copy used to get its name in the folder that the process had at its end, in the place of
/// another file perhaps.
#[test]
fn a_store_stays_in_its_folder() {
    let Ok(folder) = std::env::var(CHILD) else {
        let folder = Folder::new("folder");
        let test = "folder::a_store_stays_in_its_folder";
        let done = std::process::Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, &folder.0)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        return;
    };
    let place = |name: &str| Path::new(&folder).join(name);
    for name in ["home", "other", "third"] {
        std::fs::create_dir(place(name)).unwrap();
    }
    for folder in ["other", "third"] {
        std::fs::write(place(folder).join("kv"), b"another program's").unwrap();
    }
    go(&place("home"));
    let store = Store::open("kv", options()).unwrap();
    store.put(b"key", b"value").unwrap();
    go(&place("other"));
    for key in 0..8000u32 {
        store.put(&key.to_be_bytes(), &[7; 1000]).unwrap();
    }
    for key in 0..8000u32 {
        store.delete(&key.to_be_bytes()).unwrap();
    }
    store.compact().unwrap();
    // Where the threads put the last block decides whether the end of the file is free.
    let shrunk = store.shrink().unwrap();
    assert!(shrunk.cut + shrunk.punched > 0, "{shrunk:?}");
    let copied = store.backup("copy", |_| go(&place("third"))).unwrap();
    assert_eq!(copied.elements, 1);
    store.close().unwrap();
    for folder in ["other", "third"] {
        let left = std::fs::read(place(folder).join("kv")).unwrap();
        assert_eq!(left, b"another program's", "{folder}");
    }
    let names = |folder: &str| std::fs::read_dir(place(folder)).unwrap().count();
    assert_eq!((names("home"), names("other"), names("third")), (1, 2, 1));
    for path in [place("home").join("kv"), place("other").join("copy")] {
        let store = Store::open(path, options()).unwrap();
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}
