//! Protected paths: files that run code outside the sandbox later.
//!
//! The list is data with a reason per line. It holds at the workspace's root and in any directory below, since tools look
//! there as well, and it ignores case, since a checkout may live on a file system that does. Pure: nothing is read.

use std::path::{Component, Path};

/// One pattern: names from the outside in, lower case. `*` is one name, `**` any number of them.
struct Rule {
    names: &'static [&'static str],
    why: &'static str,
}

const fn rule(names: &'static [&'static str], why: &'static str) -> Rule {
    Rule { names, why }
}

const SHELL: &str = "a shell runs it when it starts";

/// Everything at or beneath a match is protected.
const RULES: &[Rule] = &[
    rule(&[".git", "hooks"], "git runs hooks"),
    rule(&[".git", "config"], "git's settings name programs to run"),
    rule(&[".git", "config.worktree"], "git's settings name programs to run"),
    rule(&["commondir"], "it leads git to other settings and hooks"),
    rule(&[".git", "worktrees", "*", "hooks"], "git runs hooks"),
    rule(&[".git", "worktrees", "*", "config"], "git's settings name programs to run"),
    rule(&[".git", "worktrees", "*", "config.worktree"], "git's settings name programs to run"),
    rule(&[".git", "modules", "**", "hooks"], "git runs hooks"),
    rule(&[".git", "modules", "**", "config"], "git's settings name programs to run"),
    rule(&[".git", "modules", "**", "config.worktree"], "git's settings name programs to run"),
    rule(&[".gitmodules"], "it says what git fetches and how it updates"),
    rule(&[".stockade"], "Stockade's own settings and policy"),
    rule(&[".claude"], "settings and hooks of an agent"),
    rule(&[".mcp.json"], "agents start the servers it names"),
    rule(&[".codex"], "settings of an agent"),
    rule(&[".cursor"], "settings and rules of an agent"),
    rule(&[".vscode", "tasks.json"], "the editor runs tasks"),
    rule(&[".vscode", "settings.json"], "the editor's settings name programs to run"),
    rule(&[".idea"], "the editor's run configurations"),
    rule(&[".github", "hooks"], "agents and hosts run hooks"),
    rule(&[".envrc"], "direnv runs it on entering the directory"),
    rule(&[".tool-versions"], "it says which programs run under a name"),
    rule(&[".husky"], "git hooks"),
    rule(&[".bashrc"], SHELL),
    rule(&[".bash_profile"], SHELL),
    rule(&[".bash_login"], SHELL),
    rule(&[".bash_logout"], SHELL),
    rule(&[".bash_aliases"], SHELL),
    rule(&[".profile"], SHELL),
    rule(&[".zshrc"], SHELL),
    rule(&[".zshenv"], SHELL),
    rule(&[".zprofile"], SHELL),
    rule(&[".zlogin"], SHELL),
    rule(&[".zlogout"], SHELL),
    rule(&[".kshrc"], SHELL),
    rule(&[".mkshrc"], SHELL),
    rule(&[".shrc"], SHELL),
    rule(&[".cshrc"], SHELL),
    rule(&[".tcshrc"], SHELL),
    rule(&[".login"], SHELL),
    rule(&[".logout"], SHELL),
    rule(&[".xprofile"], SHELL),
    rule(&["config.fish"], SHELL),
    rule(&[".config", "fish", "conf.d"], SHELL),
    rule(&[".config", "fish", "functions"], SHELL),
];

/// Names by which git knows a directory of its own, whatever that is called.
pub(crate) const GIT_SHAPE: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Whether a directory with these names could serve git as a repository, or as the part of one that `commondir` leads to.
pub(crate) fn is_git_shaped(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("objects") || has("commondir")) || has("objects") && has("refs")
}
/// What is protected in a directory of that shape.
pub(crate) const GIT_SHAPED: [&str; 4] = ["config", "config.worktree", "hooks", "commondir"];
/// Why.
pub(crate) const GIT_SHAPED_WHY: &str = "its directory is a git repository, whose settings and hooks git runs";

/// Why a path (relative to the workspace) is protected, if it is: it matches the list or lies beneath a match.
pub fn is_protected(relative: &Path) -> Option<&'static str> {
    let names = folded(relative);
    RULES.iter().find(|rule| (0..names.len()).any(|start| matches(rule.names, names.get(start..).unwrap_or_default()))).map(|rule| rule.why)
}

/// Why replacing a directory (by a link or a file, or removing it) would touch protected paths in it, if it would:
/// `.git` itself is an ordinary directory, but `.git` as a link leads git to somebody else's hooks.
pub fn holds_protected(relative: &Path) -> Option<&'static str> {
    let names = folded(relative);
    RULES
        .iter()
        .find(|rule| (0..names.len()).any(|start| leads_to(rule.names, names.get(start..).unwrap_or_default())))
        .map(|rule| rule.why)
}

/// Whether the pattern matches the beginning of `names`.
fn matches(pattern: &[&str], names: &[String]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, _) => true,
        (Some((&"**", rest)), _) => (0..names.len()).any(|skip| matches(rest, names.get(skip..).unwrap_or_default())),
        (Some((want, rest)), Some((name, names))) => (*want == "*" || want == name) && matches(rest, names),
        (Some(_), None) => false,
    }
}

/// Whether all of `names` matches a proper beginning of the pattern.
fn leads_to(pattern: &[&str], names: &[String]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, _) => false,
        (Some(_), None) => true,
        // Only the first level: `.git/modules/NAME` as a link leads elsewhere, but not every file beneath it does.
        (Some((&"**", _)), Some((_, rest))) => rest.is_empty(),
        (Some((want, rest)), Some((name, names))) => (*want == "*" || want == name) && leads_to(rest, names),
    }
}

/// The names of a path as file systems that ignore case see them.
fn folded(relative: &Path) -> Vec<String> {
    relative
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(fold(&name.to_string_lossy())),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// Lower case, without what macOS ignores and Windows cuts off, so that the same file is recognised under each of its names.
fn fold(name: &str) -> String {
    let kept: String = name
        .chars()
        .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'))
        .collect();
    let lower = kept.trim_end_matches(['.', ' ']).to_lowercase();
    if lower == "git~1" { ".git".into() } else { lower }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_s_list_is_protected_everywhere() {
        for path in [
            ".git/hooks",
            ".git/hooks/pre-commit",
            ".git/config",
            ".gitmodules",
            ".stockade/settings.json",
            ".stockade",
            ".claude/x/y",
            ".mcp.json",
            ".codex/config.toml",
            ".cursor/mcp.json",
            ".vscode/tasks.json",
            ".vscode/settings.json",
            ".idea/x.xml",
            ".github/hooks/x",
            ".envrc",
            ".tool-versions",
            ".husky/pre-commit",
            ".bashrc",
            ".zshenv",
            ".profile",
            ".config/fish/config.fish",
            ".config/fish/conf.d/x.fish",
            "sub/.git/hooks/x",
            "sub/.envrc",
            "packages/x/.vscode/tasks.json",
            "a/b/.claude/settings.json",
            "dotfiles/.bashrc",
            ".GIT/Hooks/x",
            ".Git/CONFIG",
            "GIT~1/config",
            ".git /config",
            ".g\u{200c}it/config",
            ".VSCODE/Tasks.json",
            ".ENVRC",
            ".git/config.worktree",
            ".git/commondir",
            ".git/worktrees/w/config.worktree",
            ".git/worktrees/w/commondir",
            ".git/modules/a/config",
            ".git/modules/a/b/hooks/x",
            "./.envrc",
        ] {
            assert!(is_protected(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn ordinary_files_are_not() {
        for path in [
            "",
            "src/main.rs",
            ".git",
            ".git/HEAD",
            ".git/index",
            ".git/refs/heads/config",
            ".git/objects/ab/cd",
            ".git/info/exclude",
            ".git/logs/HEAD",
            ".vscode",
            ".vscode/launch.json",
            ".github/workflows/ci.yml",
            "hooks/x",
            "config",
            "git/config",
            ".gitignore",
            ".gitattributes",
            "envrc",
            ".envrc.example",
            "profile",
            "x.bashrc",
            ".git/worktrees/w/HEAD",
            ".git/modules/a/HEAD",
            ".git/COMMIT_EDITMSG",
        ] {
            assert_eq!(is_protected(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn directories_that_hold_protected_paths_are_known() {
        for path in [
            ".git",
            "sub/.GIT",
            ".vscode",
            ".github",
            ".git/modules",
            ".git/modules/a",
            ".git/worktrees",
            ".git/worktrees/w",
            "x/.config/fish",
        ] {
            assert!(holds_protected(Path::new(path)).is_some(), "{path}");
        }
        for path in ["", "src", ".git/objects", ".git/refs/heads", ".github/workflows", "a/b"] {
            assert_eq!(holds_protected(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn no_rule_is_redundant_or_unreachable() {
        for (at, rule) in RULES.iter().enumerate() {
            let names: Vec<String> =
                rule.names.iter().map(|name| if name.starts_with('*') { "x".into() } else { (*name).to_string() }).collect();
            let hits = RULES
                .iter()
                .enumerate()
                .filter(|(other, rule)| *other != at && (0..names.len()).any(|start| matches(rule.names, &names[start..])));
            assert_eq!(hits.count(), 0, "{:?} is covered by another rule", rule.names);
            assert!(names.iter().all(|name| fold(name) == *name), "{:?} can never match", rule.names);
        }
    }
}
