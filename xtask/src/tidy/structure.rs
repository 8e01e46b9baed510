//! Rules about the structure of Rust sources: how long functions and files are, and which modules
//! of a crate import each other.
//!
//! What broke a rule when it was made is listed in `xtask/tidy.toml` with its size. A size may only
//! go down: a larger one fails, and so does an entry that is no longer needed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{File, rust};
use crate::Outcome;

pub(super) const FUNCTION_LINES: usize = 80;
pub(super) const FILE_LINES: usize = 600;

/// Sizes of what was there before its rule: `xtask/tidy.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// `path::function` to lines.
    functions: BTreeMap<String, usize>,
    /// Path to lines.
    files: BTreeMap<String, usize>,
    /// A crate's directory to how many of its modules are in circles.
    circles: BTreeMap<String, usize>,
}

impl Known {
    pub(super) fn read(files: &[File]) -> Outcome<Self> {
        const PATH: &str = "xtask/tidy.toml";
        let file = files.iter().find(|file| file.path == PATH);
        let text = file.map_or("", |file| &file.text);
        toml::from_str(text).map_err(|error| format!("{PATH}: {error}"))
    }
}

/// Functions outside tests.
pub(super) fn long_functions(files: &[File], known: &Known) -> Vec<String> {
    let mut found = BTreeMap::new();
    for file in rust(files).filter(|file| !is_test(&file.path)) {
        let Ok(syntax) = syn::parse_file(&file.text) else {
            continue; // the compiler says why
        };
        let mut functions = Functions::default();
        functions.visit_file(&syntax);
        for (name, lines) in functions.0 {
            found.insert(format!("{}::{name}", file.path), lines);
        }
    }
    compare(&found, &known.functions, FUNCTION_LINES, "lines")
}

/// Files, tests as well.
pub(super) fn long_files(files: &[File], known: &Known) -> Vec<String> {
    let lines = |file: &File| (file.path.clone(), file.text.lines().count());
    let found = rust(files).map(lines).collect();
    compare(&found, &known.files, FILE_LINES, "lines")
}

/// Modules of one crate that import each other. A module is a folder of `src`, or one file in it.
pub(super) fn circles(files: &[File], known: &Known) -> Vec<String> {
    let mut problems = Vec::new();
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in rust(files).filter(|file| !is_test(&file.path)) {
        if let Some((root, _)) = file.path.split_once("/src/") {
            crates.entry(root).or_default().push(file);
        }
    }
    for (root, sources) in crates {
        let imports = imports(&sources);
        let in_circles = in_circles(&imports);
        let most = known.circles.get(root).copied().unwrap_or(0);
        let count = in_circles.len();
        if count > most {
            let names = in_circles.into_iter().collect::<Vec<_>>().join(", ");
            problems.push(format!(
                "{root}: {count} modules import each other in circles, at most {most}: {names}"
            ));
        } else if count < most {
            problems.push(format!(
                "{root}: {count} modules are in circles; lower {most} in xtask/tidy.toml"
            ));
        }
    }
    problems
}

fn compare(
    found: &BTreeMap<String, usize>,
    known: &BTreeMap<String, usize>,
    limit: usize,
    unit: &str,
) -> Vec<String> {
    let too_large = found.iter().filter_map(|(name, size)| {
        let most = known.get(name).copied().unwrap_or(limit);
        (*size > most).then(|| format!("{name} has {size} {unit}, over {most}"))
    });
    let not_needed = known.iter().filter_map(|(name, most)| {
        let size = found.get(name).copied().unwrap_or(0);
        (size <= limit || size < *most)
            .then(|| format!("{name} has {size} {unit} now; lower or remove it in xtask/tidy.toml"))
    });
    too_large.chain(not_needed).collect()
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/")
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Meta>()
                .is_ok_and(|meta| matches_test(&meta))
    })
}

fn matches_test(meta: &syn::Meta) -> bool {
    match meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(
                syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
            )
            .is_ok_and(|all| all.iter().any(matches_test)),
        _ => false,
    }
}

/// Names of functions and their lines, from `fn` or its attributes' end to the closing brace.
#[derive(Default)]
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn note(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        self.0.push((signature.ident.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            self.note(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            self.note(&item.sig, &item.block);
        }
    }
}

/// For each module of a crate the modules that it names.
fn imports(sources: &[&File]) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeSet<String> = sources
        .iter()
        .filter_map(|file| module_of(&file.path))
        .collect();
    // What the crate's root names from its modules may be named without them.
    let mut reexports = BTreeMap::new();
    for file in sources {
        if file.path.ends_with("/src/lib.rs")
            && let Ok(syntax) = syn::parse_file(&file.text)
        {
            for item in &syntax.items {
                if let syn::Item::Use(item) = item {
                    note_reexports(&item.tree, None, &modules, &mut reexports);
                }
            }
        }
    }
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in sources {
        let Some(module) = module_of(&file.path) else {
            continue;
        };
        let Ok(syntax) = syn::parse_file(&file.text) else {
            continue;
        };
        let mut names = Names {
            depth: depth_of(&file.path),
            found: BTreeSet::new(),
        };
        names.visit_file(&syntax);
        let targets = names.found.iter().filter_map(|name| {
            let target = modules.get(name).or_else(|| reexports.get(name))?;
            (*target != module).then(|| target.clone())
        });
        imports.entry(module.clone()).or_default().extend(targets);
    }
    imports
}

fn note_reexports(
    tree: &syn::UseTree,
    module: Option<&str>,
    modules: &BTreeSet<String>,
    into: &mut BTreeMap<String, String>,
) {
    match tree {
        syn::UseTree::Path(path) => {
            let name = path.ident.to_string();
            let module = module.or_else(|| modules.get(&name).map(String::as_str));
            note_reexports(&path.tree, module, modules, into);
        }
        syn::UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| note_reexports(tree, module, modules, into)),
        syn::UseTree::Name(name) => {
            if let Some(module) = module {
                into.insert(name.ident.to_string(), module.to_owned());
            }
        }
        syn::UseTree::Rename(name) => {
            if let Some(module) = module {
                into.insert(name.rename.to_string(), module.to_owned());
            }
        }
        syn::UseTree::Glob(_) => {}
    }
}

/// The first level under `src`; none for the root of the crate.
fn module_of(path: &str) -> Option<String> {
    let (_, within) = path.split_once("/src/")?;
    let first = within.split('/').next()?.trim_end_matches(".rs");
    (!matches!(first, "lib" | "main" | "bin")).then(|| first.to_owned())
}

/// How many levels a file's module lies under the crate's root.
fn depth_of(path: &str) -> usize {
    let within = path.split_once("/src/").map_or("", |(_, within)| within);
    let levels = within.split('/').count();
    levels - usize::from(within.ends_with("/mod.rs"))
}

/// Names right under the crate's root that a file uses, by `crate::` or enough `super::`.
struct Names {
    depth: usize,
    found: BTreeSet<String>,
}

impl Names {
    fn note(&mut self, segments: &[String]) {
        let supers = segments.iter().take_while(|name| *name == "super").count();
        let at = match segments.first().map(String::as_str) {
            Some("crate") => 1,
            Some("super") if supers == self.depth => supers,
            _ => return,
        };
        self.found.extend(segments.get(at).cloned());
    }

    fn note_tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_tree(tree, before);
                }
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.note(before);
                before.pop();
            }
            syn::UseTree::Glob(_) => self.note(before),
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            self.depth += 1;
            visit::visit_item_mod(self, item);
            self.depth -= 1;
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test_only(&item.attrs) {
            self.note_tree(&item.tree, &mut Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|name| name.ident.to_string());
        self.note(&segments.collect::<Vec<_>>());
        visit::visit_path(self, path);
    }
}

/// Modules from which a way leads back to themselves.
fn in_circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reaches_itself = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<&String> = imports[start].iter().collect();
        while let Some(module) = waiting.pop() {
            if seen.insert(module) {
                waiting.extend(imports.get(module).into_iter().flatten());
            }
        }
        seen.contains(start)
    };
    imports
        .keys()
        .filter(|start| reaches_itself(start))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    f();\n".repeat(lines - 2))
    }

    fn source(text: &str) -> File {
        File::new("crates/broker/src/a.rs", text)
    }

    #[test]
    fn a_function_of_81_lines_is_found_wherever_it_is_but_in_tests() {
        let rule = |files: &[File]| long_functions(files, &Known::default());
        check(rule, source(&function(80)), source(&function(81)));
        let within = format!("impl A {{\n{}}}", function(81));
        check(rule, source(""), source(&within));
        let nested = format!("mod inner {{\n{}}}", function(81));
        check(rule, source(""), source(&nested));
        let test = format!("#[cfg(test)]\nmod tests {{\n{}}}", function(81));
        assert!(rule(&[source(&test)]).is_empty());
        let file = File::new("crates/broker/tests/a.rs", &function(81));
        assert!(rule(&[file]).is_empty());
    }

    #[test]
    fn a_known_function_may_not_grow_and_is_taken_off_the_list_when_it_shrinks() {
        let known = |lines| Known {
            functions: [("crates/broker/src/a.rs::long".to_owned(), lines)].into(),
            ..Known::default()
        };
        let text = function(90);
        let files = [source(&text)];
        assert!(long_functions(&files, &known(90)).is_empty());
        assert_eq!(long_functions(&files, &known(89)).len(), 1);
        assert_eq!(long_functions(&files, &known(91)).len(), 1);
        assert_eq!(long_functions(&[], &known(90)).len(), 1);
    }

    #[test]
    fn a_file_of_601_lines_is_found() {
        let rule = |files: &[File]| long_files(files, &Known::default());
        let lines = |count| source(&"//\n".repeat(count));
        check(rule, lines(600), lines(601));
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        let files = |a: &str, b: &str| {
            let named = [
                ("lib", "pub use b::Thing;"),
                ("a", a),
                ("b", b),
                ("b/inner", ""),
            ];
            named.map(|(name, text)| File::new(&format!("crates/x/src/{name}.rs"), text))
        };
        let count = |a, b| circles(&files(a, b), &Known::default()).len();
        assert_eq!(count("use crate::b::Thing;", ""), 0);
        assert_eq!(count("use crate::b::Thing;", "use crate::a::Other;"), 1);
        assert_eq!(count("use crate::Thing;", "use super::a;"), 1);
        assert_eq!(count("fn f() { crate::b::g() }", "use crate::{a, c};"), 1);
        let test = "#[cfg(test)]\nmod tests { use crate::a; }";
        assert_eq!(count("use crate::b::Thing;", test), 0);
        let files = files("use crate::b;", "use crate::a;");
        let circles = |count| {
            let known = Known {
                circles: [("crates/x".to_owned(), count)].into(),
                ..Known::default()
            };
            circles(&files, &known).len()
        };
        assert_eq!([1, 2, 3].map(circles), [1, 0, 1]);
    }
}
