//! Rules about crates and what they depend on.

use super::super::Violation;
use super::super::exceptions::{DIRECTIONS, UNSAFE_CRATES};
use super::super::tree::{Crate, Tree};

const TOOL: &str = "xtask";
const MAP: &str = "ARCHITECTURE.md";

/// Arrows between our crates point down only, and no crate takes in what it exists to be without.
pub(super) fn point_down(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for Crate { name, directory, manifest } in tree.crates().filter(|one| one.name != TOOL) {
        let path = format!("{directory}/Cargo.toml");
        let Some(direction) = DIRECTIONS.iter().find(|direction| direction.name == name) else {
            found.push(Violation::in_file(&path, "is not in the order of crates; add it to xtask/src/tidy/exceptions.rs"));
            continue;
        };
        for (dependency, line) in dependencies(manifest) {
            if is_ours(dependency) && !direction.may_use.contains(&dependency) {
                found.push(Violation::at_line(&path, line, format!("`{name}` must not depend on `{dependency}`: arrows point down only")));
            } else if direction.may_not_use.contains(&dependency) {
                found.push(Violation::at_line(&path, line, format!("`{name}` exists to be without `{dependency}`")));
            }
        }
    }
    found
}

/// Every crate takes the workspace's lints; those with unsafe have a copy of their own.
pub(super) fn take_the_lints(tree: &Tree) -> Vec<Violation> {
    let bare = tree.crates().filter(|Crate { directory, manifest, .. }| {
        let has_own = UNSAFE_CRATES.iter().any(|exception| exception.path == format!("{directory}/"));
        let section = |wanted: &str| sections(manifest).any(|(section, ..)| section == wanted);
        let inherits = sections(manifest).any(|(section, _, text)| {
            let text: String = text.split_whitespace().collect();
            (section == "lints" && text == "workspace=true") || (section.is_empty() && text == "lints.workspace=true")
        });
        if has_own { !section("lints.clippy") } else { !inherits }
    });
    bare.map(|one| Violation::in_file(one.name, "does not take the lints: write `[lints]` with `workspace = true`")).collect()
}

/// Every crate has its place in the code map.
pub(super) fn are_in_the_map(tree: &Tree) -> Vec<Violation> {
    let map = tree.text(MAP).unwrap_or_default();
    let absent =
        tree.crates().map(|one| one.name).filter(|name| !map.contains(&format!("`{name}`")) && !map.contains(&format!("### {name}\n")));
    absent.map(|name| Violation::in_file(MAP, format!("has no `{name}` in its map"))).collect()
}

/// The tool that judges the tree must build before anything else does.
pub(super) fn tool_has_no_dependencies(tree: &Tree) -> Vec<Violation> {
    let manifest = tree.text("xtask/Cargo.toml").unwrap_or_default();
    let entries = sections(manifest).filter(|(section, _, text)| section.contains("dependencies") && text.contains('='));
    entries.map(|(_, line, text)| Violation::at_line("xtask/Cargo.toml", line, format!("xtask is std only: `{text}`"))).collect()
}

fn is_ours(name: &str) -> bool {
    name == "stockade" || name.starts_with("stockade-")
}

/// What a crate is built from: normal, build and per-platform dependencies with their lines. Tests may use more.
fn dependencies(manifest: &str) -> impl Iterator<Item = (&str, usize)> {
    sections(manifest).filter_map(|(section, line, text)| {
        if section.contains("dev-dependencies") {
            return None;
        }
        // `[dependencies.name]` is a table of its own, and each of its lines stands for the name.
        let own_table = section.rsplit_once('.').filter(|(table, _)| is_dependency_table(table)).map(|(_, name)| name);
        let entry = || is_dependency_table(section).then(|| text.split(['=', '.', ' ']).next()).flatten();
        let name = own_table.or_else(entry)?.trim().trim_matches('"');
        (text.contains('=') && !name.is_empty()).then_some((name, line))
    })
}

fn is_dependency_table(section: &str) -> bool {
    section.ends_with("dependencies")
}

/// Every line of a manifest that is not a heading, with its section and number.
fn sections(manifest: &str) -> impl Iterator<Item = (&str, usize, &str)> {
    let mut section = "";
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(heading) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = heading.trim();
            return None;
        }
        (!line.is_empty()).then_some((section, index + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let bad = "[package]\nname = \"x\"\n[dependencies]\nserde = \"1\"\nstockade-store = { workspace = true }\n";
        assert_eq!(places(point_down, &[("crates/stockade-sandbox/Cargo.toml", bad)]), ["crates/stockade-sandbox/Cargo.toml:5"]);
        assert_eq!(places(point_down, &[("crates/stockade-core/Cargo.toml", bad)]), ["crates/stockade-core/Cargo.toml:5"]);
        assert_eq!(places(point_down, &[("crates/stockade/Cargo.toml", bad)]), NONE);
    }

    #[test]
    fn platform_and_build_dependencies_count_and_test_ones_do_not() {
        let text = "[target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n[build-dependencies]\nstockade-sys.workspace = true\n[dev-dependencies]\nstockade = \"1\"\n[dependencies.libc]\nversion = \"1\"\n";
        let path = "crates/stockade-core/Cargo.toml";
        assert_eq!(places(point_down, &[(path, text)]), [format!("{path}:2"), format!("{path}:4"), format!("{path}:8")]);
    }

    #[test]
    fn a_crate_outside_the_order_is_found() {
        assert_eq!(places(point_down, &[("crates/stockade-new/Cargo.toml", "")]), ["crates/stockade-new/Cargo.toml"]);
    }

    #[test]
    fn every_name_in_the_order_is_known_to_the_order() {
        for direction in DIRECTIONS {
            for used in direction.may_use {
                assert!(DIRECTIONS.iter().any(|other| other.name == *used), "{used}");
            }
        }
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let files = [
            ("crates/a/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("crates/b/Cargo.toml", "[lints]\nworkspace = false\n"),
            ("crates/c/Cargo.toml", "lints.workspace = true\n"),
            ("crates/stockade-sys/Cargo.toml", "[lints.clippy]\nall = \"warn\"\n"),
            ("crates/stockade-shim/Cargo.toml", "[package]\nname = \"x\"\n"),
        ];
        assert_eq!(places(take_the_lints, &files), ["b", "stockade-shim"]);
    }

    #[test]
    fn a_crate_outside_the_map_is_found() {
        let manifests = [("crates/one/Cargo.toml", ""), ("crates/two/Cargo.toml", ""), ("ARCHITECTURE.md", "has `one`")];
        assert_eq!(places(are_in_the_map, &manifests), ["ARCHITECTURE.md"]);
    }

    #[test]
    fn a_dependency_of_the_tool_is_found() {
        let text = "[package]\nname = \"xtask\"\n[dependencies]\nserde = \"1\"\n";
        assert_eq!(places(tool_has_no_dependencies, &[("xtask/Cargo.toml", text)]), ["xtask/Cargo.toml:4"]);
    }
}
