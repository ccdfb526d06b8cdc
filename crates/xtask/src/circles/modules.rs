// SPDX-License-Identifier: Apache-2.0
//! Reads the sources of a crate and says which file imports which, for [`super`].
//!
//! The sources are read as tokens, so comments do not count and macros do. An import is each path
//! that begins with `crate`, `super`, `self` or the name of a child module. A path leads to the
//! file that defines its name: `pub use` and `use` are followed. Modules for tests are ignored, and
//! so are imports from a file to its parents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// More steps than any chain of `use` has: a chain that goes around ends here.
const MOST_STEPS: usize = 8;

/// The words that come before the name of an item.
const ITEMS: [&str; 8] = [
    "struct", "enum", "trait", "fn", "type", "const", "static", "union",
];

/// The files of a crate, and which imports which.
pub struct Imports {
    /// The files, by their path from the crate's `src`.
    pub files: Vec<String>,
    /// From a file to another: the names imported.
    edges: BTreeMap<(usize, usize), BTreeSet<String>>,
}

impl Imports {
    /// Reads the crate with this root file.
    pub fn of(root: &Path) -> Result<Imports> {
        let folder = root.parent().context("a crate's root lies in a folder")?;
        let mut tree = Tree::default();
        tree.file(None, String::new(), root, folder)?;
        let shown = |path: &PathBuf| {
            let path = path.strip_prefix(folder).unwrap_or(path);
            path.to_string_lossy().into_owned()
        };
        Ok(Imports {
            files: tree.files.iter().map(shown).collect(),
            edges: tree.edges(),
        })
    }

    /// The files that a file imports, directly and indirectly.
    pub fn reached(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![from];
        while let Some(file) = ahead.pop() {
            for (_, to) in self.edges.keys().filter(|(from, _)| *from == file) {
                if reached.insert(*to) {
                    ahead.push(*to);
                }
            }
        }
        reached
    }

    /// The imports between these files: from, to, and the names. A name that a `use` brought in
    /// counts once, by the path of the `use`.
    pub fn within(&self, files: &BTreeSet<String>) -> Vec<(&str, &str, Vec<&str>)> {
        let name = |file: usize| self.files[file].as_str();
        let is_full = |path: &&str| {
            let first = path.split("::").next();
            first.is_some_and(|first| ["crate", "super", "self"].contains(&first))
        };
        self.edges
            .iter()
            .filter(|((from, to), _)| files.contains(name(*from)) && files.contains(name(*to)))
            .map(|((from, to), what)| {
                let mut shown: Vec<&str> =
                    what.iter().map(String::as_str).filter(is_full).collect();
                if shown.is_empty() {
                    shown = what.iter().map(String::as_str).collect();
                }
                (name(*from), name(*to), shown)
            })
            .collect()
    }
}

/// A module: its own file, or a part of one.
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of its items.
    defined: BTreeSet<String>,
    /// The names that `use` brings in: the local name, and its path.
    used: BTreeMap<String, Vec<String>>,
    /// Which of these names `pub use` re-exports.
    handed_on: BTreeSet<String>,
    /// Paths of `use ...::*`.
    globs: Vec<Vec<String>>,
    /// Paths in the code.
    named: BTreeSet<Vec<String>>,
}

#[derive(Default)]
struct Tree {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
}

impl Tree {
    /// Reads a module's file. The files of its children lie in `folder`.
    fn file(
        &mut self,
        parent: Option<usize>,
        name: String,
        file: &Path,
        folder: &Path,
    ) -> Result<()> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let tokens: TokenStream = text
            .parse()
            .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        self.files.push(file.to_path_buf());
        let module = self.module(parent, name, self.files.len() - 1);
        self.items(module, &tokens, folder)
    }

    fn module(&mut self, parent: Option<usize>, name: String, file: usize) -> usize {
        let module = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            defined: BTreeSet::new(),
            used: BTreeMap::new(),
            handed_on: BTreeSet::new(),
            globs: Vec::new(),
            named: BTreeSet::new(),
        });
        if let Some(parent) = parent {
            self.modules[parent].children.insert(name, module);
        }
        module
    }

    /// Reads tokens of a module: its children, what it uses, and the paths in its code.
    fn items(&mut self, module: usize, tokens: &TokenStream, folder: &Path) -> Result<()> {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let (mut at, mut path_attribute) = (0, None);
        while at < tokens.len() {
            if let Some(attribute) = attribute(&tokens[at..]) {
                at += 2;
                if attribute.replace(' ', "") == "cfg(test)" {
                    at += length_of_item(&tokens[at..]);
                } else if let Some(path) = attribute.strip_prefix("path = ") {
                    path_attribute = Some(path.trim_matches('"').to_owned());
                }
                continue;
            }
            if let [TokenTree::Ident(word), TokenTree::Ident(name), ..] = &tokens[at..]
                && ITEMS.iter().any(|item| word == item)
            {
                self.modules[module].defined.insert(name.to_string());
            }
            match (&tokens[at], tokens.get(at + 1), tokens.get(at + 2)) {
                (TokenTree::Ident(word), Some(TokenTree::Ident(name)), Some(after))
                    if word == "mod" =>
                {
                    self.child(
                        module,
                        &name.to_string(),
                        after,
                        folder,
                        path_attribute.take(),
                    )?;
                    at += 3;
                }
                (TokenTree::Ident(word), ..) if word == "use" => {
                    let end = at + length_of_item(&tokens[at..]);
                    self.used(module, &tokens[at + 1..end], ends_in_pub(&tokens[..at]));
                    at = end;
                }
                (TokenTree::Ident(_), ..) if !within_path(&tokens, at) => {
                    let path = path(&tokens[at..]);
                    at += 1 + 3 * (path.len() - 1);
                    if path.len() > 1 {
                        self.modules[module].named.insert(path);
                    }
                }
                (TokenTree::Group(group), ..) => {
                    self.items(module, &group.stream(), folder)?;
                    at += 1;
                }
                _ => at += 1,
            }
        }
        Ok(())
    }

    /// Reads `mod name { ... }` or the file of `mod name;`.
    fn child(
        &mut self,
        parent: usize,
        name: &str,
        after: &TokenTree,
        folder: &Path,
        path: Option<String>,
    ) -> Result<()> {
        let nested = folder.join(name);
        if let TokenTree::Group(body) = after {
            let module = self.module(Some(parent), name.to_owned(), self.modules[parent].file);
            return self.items(module, &body.stream(), &nested);
        }
        let file = match path {
            Some(path) => {
                let beside = self.files[self.modules[parent].file].parent();
                beside.unwrap_or(folder).join(path)
            }
            None => folder.join(format!("{name}.rs")),
        };
        self.file(Some(parent), name.to_owned(), &file, &nested)
    }

    /// Reads the tree of a `use`, up to its semicolon.
    fn used(&mut self, module: usize, tokens: &[TokenTree], is_pub: bool) {
        let mut found = Vec::new();
        use_tree(tokens, &[], &mut found);
        let module = &mut self.modules[module];
        for (path, shown_as) in found {
            module.named.insert(path.clone());
            match shown_as {
                Some(name) => {
                    if is_pub {
                        module.handed_on.insert(name.clone());
                    }
                    module.used.insert(name, path);
                }
                None => module.globs.push(path),
            }
        }
    }

    /// The module that a path leads to: the module that defines the path's last name, or the module
    /// of that name.
    fn resolve(&self, module: usize, path: &[String], steps: usize) -> Option<usize> {
        if steps == MOST_STEPS {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => 0,
            "self" => module,
            "super" => self.modules[module].parent?,
            _ => {
                rest = path;
                module
            }
        };
        for (depth, name) in rest.iter().enumerate() {
            let here = &self.modules[at];
            if name == "super" {
                at = here.parent?;
            } else if let Some(child) = here.children.get(name) {
                at = *child;
            } else if let Some(used) = here.used.get(name).filter(|used| **used != path) {
                // The path ends at another crate's name.
                let Some(target) = self.resolve(at, used, steps + 1) else {
                    return (depth > 0 || rest.len() < path.len()).then_some(at);
                };
                at = target;
            } else if !here.defined.contains(name)
                && let Some(target) = self.through_globs(at, name, steps)
            {
                at = target;
            } else if depth == 0 && rest.len() == path.len() {
                // A name that begins a path and is neither a child's nor used: another crate's.
                return None;
            } else {
                return Some(at);
            }
        }
        Some(at)
    }

    /// The module from which a `use` of `*` brings in a name.
    fn through_globs(&self, module: usize, name: &String, steps: usize) -> Option<usize> {
        self.modules[module].globs.iter().find_map(|glob| {
            let from = self.resolve(module, glob, steps + 1)?;
            let there = &self.modules[from];
            let has_name = there.defined.contains(name)
                || there.children.contains_key(name)
                || there.handed_on.contains(name);
            (from != module && has_name)
                .then(|| self.resolve(from, &["self".to_owned(), name.clone()], steps + 1))?
        })
    }

    fn is_parent(&self, of: usize, module: usize) -> bool {
        let mut above = self.modules[of].parent;
        while let Some(parent) = above {
            if self.modules[parent].file == self.modules[module].file {
                return true;
            }
            above = self.modules[parent].parent;
        }
        false
    }

    fn edges(&self) -> BTreeMap<(usize, usize), BTreeSet<String>> {
        let mut edges: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (from, module) in self.modules.iter().enumerate() {
            for path in &module.named {
                let Some(to) = self.resolve(from, path, 0) else {
                    continue;
                };
                let (source, target) = (module.file, self.modules[to].file);
                if source != target && !self.is_parent(from, to) {
                    edges
                        .entry((source, target))
                        .or_default()
                        .insert(path.join("::"));
                }
            }
        }
        edges
    }
}

/// The content of the attribute that tokens begin with, without the brackets.
fn attribute(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [TokenTree::Punct(hash), TokenTree::Group(group), ..]
            if hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
        {
            Some(group.stream().to_string())
        }
        _ => None,
    }
}

/// How many tokens an item has: up to its semicolon or its braces. A `use` ends at its semicolon.
fn length_of_item(tokens: &[TokenTree]) -> usize {
    let mut is_use = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "use" => is_use = true,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return at + 1,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => {
                return at + 1;
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Whether the last tokens are `pub` or `pub(...)`.
fn ends_in_pub(tokens: &[TokenTree]) -> bool {
    let before = match tokens {
        [before @ .., TokenTree::Group(_)] => before,
        _ => tokens,
    };
    matches!(before.last(), Some(TokenTree::Ident(word)) if word == "pub")
}

/// Whether a token comes after two colons.
fn within_path(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2 && is_double_colon(&tokens[at - 2..])
}

fn is_double_colon(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(a), TokenTree::Punct(b), ..]
        if a.as_char() == ':' && b.as_char() == ':')
}

/// The names of the path that tokens begin with.
fn path(tokens: &[TokenTree]) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        names.push(name.to_string());
        if !is_double_colon(tokens.get(at + 1..).unwrap_or_default()) {
            break;
        }
        at += 3;
    }
    names
}

/// The paths of a `use`, each with the name that it has here; none for a `*`.
fn use_tree(
    tokens: &[TokenTree],
    before: &[String],
    found: &mut Vec<(Vec<String>, Option<String>)>,
) {
    let is_comma = |t: &TokenTree| matches!(t, TokenTree::Punct(mark) if mark.as_char() == ',');
    for part in tokens.split(is_comma) {
        let mut names = before.to_vec();
        names.extend(path(part));
        let rest = &part[part
            .iter()
            .take_while(|t| match t {
                TokenTree::Ident(word) => word != "as",
                TokenTree::Punct(mark) => mark.as_char() == ':',
                _ => false,
            })
            .count()..];
        match rest {
            [TokenTree::Group(group), ..] => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                use_tree(&inner, &names, found);
            }
            [TokenTree::Punct(mark), ..] if mark.as_char() == '*' => found.push((names, None)),
            _ => {
                if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
                    names.pop();
                }
                let shown_as = match rest {
                    [_, TokenTree::Ident(name), ..] => Some(name.to_string()),
                    _ => names.last().cloned(),
                };
                if let Some(shown_as) = shown_as {
                    found.push((names, Some(shown_as)));
                }
            }
        }
    }
}
