// SPDX-License-Identifier: Apache-2.0
//! Every public item of a library has an example: each type, trait, function and method that can be
//! reached from the crate's root.
//!
//! The test reads sources, not the compiler's output, so it follows names as far as `pub mod` and
//! `pub use` lead. Fields, variants and constants need no example, and `#[doc(hidden)]` items do
//! not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use syn::{Attribute, ImplItem, Item, TraitItem, UseTree, Visibility};

use crate::complain;
use crate::tree::root;

/// Crates that must have examples, and how many at least, so that the test cannot pass because it
/// found nothing.
const CRATES: [(&str, usize); 1] = [("store", 240)];

#[test]
fn every_public_item_has_an_example() {
    for (name, least) in CRATES {
        let source = Source::read(&root().join("crates").join(name).join("src"));
        let (with, without) = source.examples();
        complain(
            &format!("items of crates/{name} without an example"),
            without,
        );
        assert!(with >= least, "only {with} examples were found in {name}");
    }
}

/// A module's path from the crate's root, and a name in it.
type Name = (String, String);

#[derive(Default)]
struct Source {
    modules: BTreeMap<String, Vec<Item>>,
    /// Modules that users can name.
    public: BTreeSet<String>,
    /// Items that `pub use` exports under a name, wherever they are defined.
    shown: BTreeMap<Name, Name>,
}

impl Source {
    fn read(folder: &std::path::Path) -> Source {
        let mut source = Source::default();
        source.module(String::new(), folder.join("lib.rs"), folder.into(), true);
        source
    }

    /// Reads a module's file and those of its submodules, which are in `folder`.
    fn module(&mut self, path: String, file: PathBuf, folder: PathBuf, public: bool) {
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let items = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
            .items;
        self.items(path, items, folder, public);
    }

    fn items(&mut self, path: String, items: Vec<Item>, folder: PathBuf, public: bool) {
        if public {
            self.public.insert(path.clone());
        }
        let mut own = Vec::new();
        for item in items {
            match item {
                Item::Mod(module) if !is_test(&module.attrs) => {
                    let name = module.ident.to_string();
                    let seen = public && is_pub(&module.vis) && !is_hidden(&module.attrs);
                    let inner = joined(&path, &name);
                    if let Some((_, items)) = module.content {
                        self.items(inner, items, folder.join(name), seen);
                        continue;
                    }
                    let (file, nested) = (folder.join(format!("{name}.rs")), folder.join(&name));
                    self.module(inner, file, nested, seen);
                }
                Item::Use(used) if is_pub(&used.vis) => self.used(&path, "", &used.tree),
                Item::Mod(_) => {}
                other => own.push(other),
            }
        }
        self.modules.insert(path, own);
    }

    /// Notes the exports of a `pub use` in module `path`. `from` is the part of the tree that was
    /// read.
    fn used(&mut self, path: &str, from: &str, tree: &UseTree) {
        let mut note = |name: String, shown_as: String| {
            let module = match from.strip_prefix("crate") {
                Some(absolute) => absolute.trim_start_matches("::").to_owned(),
                None => joined(path, from.strip_prefix("self::").unwrap_or(from)),
            };
            self.shown
                .insert((path.to_owned(), shown_as), (module, name));
        };
        match tree {
            UseTree::Name(name) => note(name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(name) => note(name.ident.to_string(), name.rename.to_string()),
            UseTree::Path(part) => {
                self.used(path, &joined(from, &part.ident.to_string()), &part.tree);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.used(path, from, tree);
                }
            }
            UseTree::Glob(_) => panic!("`pub use` of everything in {path:?} is not followed"),
        }
    }

    /// Whether users can name an item.
    fn reachable(&self) -> BTreeSet<Name> {
        let mut reached = BTreeSet::new();
        for (path, items) in self
            .modules
            .iter()
            .filter(|(p, _)| self.public.contains(*p))
        {
            let named = items.iter().filter_map(item_name);
            reached.extend(named.map(|name| (path.clone(), name)));
        }
        let mut ahead: Vec<&Name> = self
            .shown
            .keys()
            .filter(|(path, _)| self.public.contains(path))
            .collect();
        while let Some(name) = ahead.pop() {
            let target = &self.shown[name];
            if reached.insert(target.clone()) && self.shown.contains_key(target) {
                ahead.push(target);
            }
        }
        reached
    }

    /// Whether users can name the type that module `path` calls `name`: the module's own type with
    /// this name, or else one from elsewhere.
    fn is_reachable_type(
        &self,
        path: &str,
        name: &str,
        reachable: &BTreeSet<Name>,
        types: &BTreeSet<&String>,
    ) -> bool {
        let mut own = self.modules[path].iter().filter_map(item_name);
        if own.any(|its| its == name) {
            return reachable.contains(&(path.to_owned(), name.to_owned()));
        }
        types.contains(&name.to_owned())
    }

    /// The number of items with an example, and the names of those without.
    fn examples(&self) -> (usize, Vec<String>) {
        let reachable = self.reachable();
        let types: BTreeSet<&String> = reachable.iter().map(|(_, name)| name).collect();
        let mut found: Vec<(String, bool)> = Vec::new();
        let mut see = |path: &str, name: String, attributes: &[Attribute]| {
            if !is_hidden(attributes) {
                found.push((joined(path, &name), has_example(attributes)));
            }
        };
        for (path, items) in &self.modules {
            for item in items {
                if let Item::Impl(block) = item
                    && block.trait_.is_none()
                    && let syn::Type::Path(of) = &*block.self_ty
                    && let Some(of) = of.path.segments.last()
                    && self.is_reachable_type(path, &of.ident.to_string(), &reachable, &types)
                {
                    for inner in &block.items {
                        if let ImplItem::Fn(method) = inner
                            && is_pub(&method.vis)
                        {
                            let name = format!("{}::{}", of.ident, method.sig.ident);
                            see(path, name, &method.attrs);
                        }
                    }
                }
                let Some(name) = item_name(item) else {
                    continue;
                };
                if !reachable.contains(&(path.clone(), name.clone())) {
                    continue;
                }
                match item {
                    Item::Struct(item) if is_pub(&item.vis) => see(path, name, &item.attrs),
                    Item::Enum(item) if is_pub(&item.vis) => see(path, name, &item.attrs),
                    Item::Fn(item) if is_pub(&item.vis) => see(path, name, &item.attrs),
                    Item::Trait(item) if is_pub(&item.vis) => {
                        for inner in &item.items {
                            if let TraitItem::Fn(method) = inner {
                                let method_name = format!("{name}::{}", method.sig.ident);
                                see(path, method_name, &method.attrs);
                            }
                        }
                        see(path, name, &item.attrs);
                    }
                    _ => {}
                }
            }
        }
        let with = found.iter().filter(|(_, has)| *has).count();
        let without = found.into_iter().filter(|(_, has)| !has);
        (with, without.map(|(name, _)| name).collect())
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() || name.is_empty() {
        format!("{path}{name}")
    } else {
        format!("{path}::{name}")
    }
}

fn item_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The words in an attribute's parentheses.
fn list(attributes: &[Attribute], name: &str) -> Vec<String> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident(name))
        .filter_map(|attribute| attribute.meta.require_list().ok())
        .map(|list| list.tokens.to_string())
        .collect()
}

fn is_test(attributes: &[Attribute]) -> bool {
    list(attributes, "cfg").iter().any(|what| what == "test")
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    list(attributes, "doc").iter().any(|what| what == "hidden")
}

fn has_example(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if let Ok(value) = attribute.meta.require_name_value()
            && attribute.path().is_ident("doc")
            && let syn::Expr::Lit(line) = &value.value
            && let syn::Lit::Str(line) = &line.lit
        {
            // Text or shell lines are not examples that the compiler checks.
            return ["```", "```no_run"].contains(&line.value().trim());
        }
        false
    })
}

#[test]
fn what_users_see_is_told_from_what_they_do_not() {
    let text = "
        mod inner {
            /// Seen, by the line below.
            pub struct Seen;
            impl Seen {
                /// With an example.
                ///
                /// ```
                /// ```
                pub fn with(&self) {}
                pub fn without(&self) {}
                fn private(&self) {}
            }
            pub struct Unseen;
            impl Unseen {
                pub fn no_matter(&self) {}
            }
        }
        pub use inner::Seen;
        mod other {
            pub struct Seen;
            impl Seen {
                pub fn another_of_that_name(&self) {}
            }
        }
        #[doc(hidden)]
        pub mod hidden {
            pub fn no_matter() {}
        }
        pub mod shown {
            pub fn without() {}
            pub trait Asked {
                fn too();
            }
        }
    ";
    let mut source = Source::default();
    let items = syn::parse_file(text).expect("it is Rust").items;
    source.items(String::new(), items, PathBuf::new(), true);
    let (with, mut without) = source.examples();
    without.sort();
    assert_eq!(with, 1);
    assert_eq!(
        without,
        [
            "inner::Seen",
            "inner::Seen::without",
            "shown::Asked",
            "shown::Asked::too",
            "shown::without"
        ]
    );
}
