//! The data files of `tables/`, read once. A line that cannot be read would be a mistake of ours; tests refuse it, and here it is passed over
//! on the side of knowing less.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What a builtin's arguments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    /// Needs no permit.
    Free,
    /// Like any program.
    Plain,
    /// Words may be evaluated as arithmetic.
    Evaluates,
    /// Words are assignments.
    Declares,
    /// Operands are names of variables.
    Names,
    /// The first operand is a script.
    Runs,
    /// `-C` and `-F` name commands.
    RunsOption,
    /// Gives a name another meaning.
    Shadows,
    /// Runs what cannot be seen.
    Hides,
}

/// What an option does besides being an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Its value is a command.
    Runs,
    /// Its value is a command, where one is attached.
    RunsAttached,
    /// Its value is a file that is written.
    Writes,
    /// Its value is a file that is read.
    Reads,
    /// Its value is a setting of git.
    Setting,
    /// What happens comes from elsewhere.
    Hides,
    /// The words up to `;` or `+` are a command.
    Calls,
}

/// An option that a table names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// The subcommand it belongs to, or nothing for any.
    pub(super) subcommand: &'static str,
    /// The option as it is written.
    pub(super) option: &'static str,
    /// What it does.
    pub(super) effect: Effect,
}

/// How a wrapper's words are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrapper {
    /// What follows its own words.
    pub(super) kind: WrapperKind,
    /// Operands before the command.
    pub(super) operands: usize,
    /// Whether assignments may stand before the command.
    pub(super) assignments: bool,
    /// Whether words of its input are added to the command.
    pub(super) input: bool,
    /// Whether `-5` is an option.
    pub(super) numbers: bool,
    /// The command where none is written.
    pub(super) default: Option<&'static str>,
    /// Options that take a value.
    pub(super) values: Vec<&'static str>,
    /// Options without one.
    pub(super) flags: Vec<&'static str>,
    /// Options whose value is a script.
    pub(super) texts: Vec<&'static str>,
}

/// What follows a wrapper's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrapperKind {
    /// A command.
    Command,
    /// Words that a shell joins and runs.
    Text,
    /// Nothing that runs.
    Nothing,
}

/// The kind of a builtin.
pub(super) fn builtin(name: &str) -> Option<Builtin> {
    BUILTINS.get(name).copied()
}

/// Why a variable changes how programs run.
pub(super) fn variable(name: &str) -> Option<&'static str> {
    let exact = VARIABLES.exact.get(name).copied();
    exact.or_else(|| VARIABLES.patterns.iter().find(|(pattern, _)| glob(pattern, name)).map(|(_, reason)| *reason))
}

/// Whether a program has subcommands, and its global options if so: the option, and whether it takes a value.
pub(super) fn subcommands(program: &str) -> Option<&'static [(&'static str, bool)]> {
    SUBCOMMANDS.get(program).map(Vec::as_slice)
}

/// The options of a program that do more than others.
pub(super) fn options(program: &str) -> &'static [Known] {
    OPTIONS.get(program).map_or(&[], Vec::as_slice)
}

/// How a wrapper is to be read.
pub(super) fn wrapper(program: &str) -> Option<&'static Wrapper> {
    WRAPPERS.get(program)
}

/// Whether a setting of git runs nothing and leads nowhere.
pub(super) fn is_harmless_setting(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    lines(include_str!("../../tables/settings.txt")).any(|(words, _)| words.first().is_some_and(|pattern| glob(pattern, &name)))
}

/// Programs that a program cannot work without.
pub fn helpers(program: &str) -> &'static [&'static str] {
    HELPERS.get(program).map_or(&[], Vec::as_slice)
}

static BUILTINS: LazyLock<HashMap<&'static str, Builtin>> = LazyLock::new(|| {
    let kind = |word: &str| match word {
        "free" => Some(Builtin::Free),
        "plain" => Some(Builtin::Plain),
        "evaluates" => Some(Builtin::Evaluates),
        "declares" => Some(Builtin::Declares),
        "names" => Some(Builtin::Names),
        "runs" => Some(Builtin::Runs),
        "runs-option" => Some(Builtin::RunsOption),
        "shadows" => Some(Builtin::Shadows),
        "hides" => Some(Builtin::Hides),
        _ => None,
    };
    let table = lines(include_str!("../../tables/builtins.txt"));
    table.filter_map(|(words, _)| Some((*words.first()?, kind(words.get(1)?)?))).collect()
});

struct Variables {
    exact: HashMap<&'static str, &'static str>,
    patterns: Vec<(&'static str, &'static str)>,
}

static VARIABLES: LazyLock<Variables> = LazyLock::new(|| {
    let table = lines(include_str!("../../tables/variables.txt"));
    let all = table.filter_map(|(words, reason)| Some((*words.first()?, reason)));
    let (patterns, exact): (Vec<_>, Vec<_>) = all.partition(|(name, _)| name.contains('*'));
    Variables { exact: exact.into_iter().collect(), patterns }
});

type GlobalOptions = Vec<(&'static str, bool)>;

static SUBCOMMANDS: LazyLock<HashMap<&'static str, GlobalOptions>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, GlobalOptions> = HashMap::new();
    for (words, _) in lines(include_str!("../../tables/subcommands.txt")) {
        if let [program, option, kind] = words.as_slice() {
            let options = table.entry(program).or_default();
            if *option != "-" {
                options.push((option, *kind == "value"));
            }
        }
    }
    table
});

static OPTIONS: LazyLock<HashMap<&'static str, Vec<Known>>> = LazyLock::new(|| {
    let effect = |word: &str| match word {
        "runs" => Some(Effect::Runs),
        "runs-attached" => Some(Effect::RunsAttached),
        "writes" => Some(Effect::Writes),
        "reads" => Some(Effect::Reads),
        "setting" => Some(Effect::Setting),
        "hides" => Some(Effect::Hides),
        "calls" => Some(Effect::Calls),
        _ => None,
    };
    let mut table: HashMap<&'static str, Vec<Known>> = HashMap::new();
    for (words, _) in lines(include_str!("../../tables/options.txt")) {
        if let [program, option, word] = words.as_slice()
            && let Some(effect) = effect(word)
        {
            let (program, subcommand) = program.split_once('/').unwrap_or((program, ""));
            table.entry(program).or_default().push(Known { subcommand, option, effect });
        }
    }
    table
});

static WRAPPERS: LazyLock<HashMap<&'static str, Wrapper>> = LazyLock::new(|| {
    lines(include_str!("../../tables/wrappers.txt")).filter_map(|(words, _)| Some((*words.first()?, wrapper_of(&words)?))).collect()
});

fn wrapper_of(words: &[&'static str]) -> Option<Wrapper> {
    let field = |name: &str| words.iter().filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value);
    let list = |name: &str| field(name).unwrap_or_default().split(',').filter(|word| !word.is_empty()).collect();
    Some(Wrapper {
        kind: match *words.get(1)? {
            "command" => WrapperKind::Command,
            "text" => WrapperKind::Text,
            "none" => WrapperKind::Nothing,
            _ => return None,
        },
        operands: field("operands")?.parse().ok()?,
        assignments: field("assignments").is_some(),
        input: field("input").is_some(),
        numbers: field("numbers").is_some(),
        default: field("default"),
        values: list("values"),
        flags: list("flags"),
        texts: list("texts"),
    })
}

static HELPERS: LazyLock<HashMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let table = lines(include_str!("../../tables/helpers.txt"));
    table.filter_map(|(words, _)| Some((*words.first()?, words.get(1..)?.to_vec()))).collect()
});

/// Lines of a table as words and reason.
fn lines(text: &'static str) -> impl Iterator<Item = (Vec<&'static str>, &'static str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (words, reason) = line.rsplit_once(" : ")?;
        Some((words.split_whitespace().collect(), reason))
    })
}

/// Whether `*` in a pattern, standing for anything, makes it the name.
fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str, usize); 7] = [
        ("builtins", include_str!("../../tables/builtins.txt"), 2),
        ("variables", include_str!("../../tables/variables.txt"), 1),
        ("subcommands", include_str!("../../tables/subcommands.txt"), 3),
        ("options", include_str!("../../tables/options.txt"), 3),
        ("wrappers", include_str!("../../tables/wrappers.txt"), 3),
        ("settings", include_str!("../../tables/settings.txt"), 1),
        ("helpers", include_str!("../../tables/helpers.txt"), 2),
    ];

    #[test]
    fn every_line_is_read_and_has_a_reason() {
        for (name, text, least) in FILES {
            let facts = text.lines().filter(|line| !line.starts_with('#')).count();
            let read: Vec<_> = lines(text).collect();
            assert_eq!(read.len(), facts, "{name}");
            for (words, reason) in read {
                assert!(words.len() >= least && !reason.trim().is_empty(), "{name}: {words:?}");
            }
        }
    }

    #[test]
    fn every_line_is_understood_and_none_says_it_twice() {
        let facts = |text: &'static str| lines(text).count();
        assert_eq!(BUILTINS.len(), facts(FILES[0].1));
        assert_eq!(VARIABLES.exact.len() + VARIABLES.patterns.len(), facts(FILES[1].1));
        let all: usize = SUBCOMMANDS.values().map(|options| options.len() + 1).sum();
        assert_eq!(all, facts(FILES[2].1));
        assert_eq!(OPTIONS.values().map(Vec::len).sum::<usize>(), facts(FILES[3].1));
        assert_eq!(WRAPPERS.len(), facts(FILES[4].1));
        assert_eq!(HELPERS.len(), facts(FILES[6].1));
        for (name, text, _) in FILES {
            let mut words: Vec<_> = lines(text).map(|(words, _)| words).collect();
            let count = words.len();
            words.sort();
            words.dedup();
            assert_eq!(words.len(), count, "{name}");
        }
    }

    #[test]
    fn patterns_of_variables_match_whole_names() {
        for name in [
            "PATH",
            "LD_PRELOAD",
            "GIT_PAGER",
            "SYSTEMD_PAGER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "PYTHONPATH",
            "BASH_FUNC_ls%%",
        ] {
            assert!(variable(name).is_some(), "{name}");
        }
        for name in ["MY_PATH", "PATHS", "NODE_ENV", "CARGO_TARGET_DIR", "x", "", "PAGERS"] {
            assert!(variable(name).is_none(), "{name}");
        }
    }

    #[test]
    fn no_variable_is_named_under_a_pattern_that_covers_it() {
        for name in VARIABLES.exact.keys() {
            let covering = VARIABLES.patterns.iter().find(|(pattern, _)| glob(pattern, name));
            assert_eq!(covering, None, "{name}");
        }
    }
}
