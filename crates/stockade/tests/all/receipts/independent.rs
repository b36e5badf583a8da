//! Exports of real runs, checked by programs that are not ours.

use std::path::PathBuf;

use super::{all, receipts};
use crate::wall::ground::finish;
use crate::wall::{Ground, Who};

/// Where `cargo xtask test` put the Python packages; unset, the machine's own are used.
#[expect(clippy::disallowed_methods, reason = "which packages to use is the caller's to say")]
fn packages() -> Option<PathBuf> {
    std::env::var_os("STOCKADE_TEST_PYTHON_PACKAGES").map(PathBuf::from)
}

/// A ground with receipts of several kinds.
fn ground() -> Ground {
    let ground = Ground::new(Who::Root);
    assert_eq!(ground.run(&[], &["bash", "-c", "echo x > made; exit 1"]).code, Some(1));
    assert_eq!(finish(&mut ground.stockade(["config", "set", "sandbox.limits.pids", "100"])).code, Some(0));
    let rules = "permit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");\n";
    ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), rules, 0o600);
    assert_eq!(ground.run(&[], &["touch", "y"]).code, Some(126));
    ground
}

/// Writes an export and runs a script of ours over it, with what others wrote.
fn check(ground: &Ground, format: &str, script: &str, name: &str) -> String {
    let file = ground.base.join(format!("export.{format}"));
    assert_eq!(receipts(ground, &["export", "--format", format, "--output", file.to_str().expect("a path")]).code, Some(0));
    let program = ground.base.join(name);
    ground.plant(&program, script, 0o644);
    let mut command = ground.outside("python3");
    command.arg("-B").arg(&program).arg(&file).arg(ground.state.join("stockade/receipts/key.pub.pem"));
    if let Some(packages) = packages() {
        command.env("PYTHONPATH", packages);
    }
    let outcome = finish(&mut command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}\nhint: cargo xtask test installs what the script needs");
    outcome.stdout
}

#[test]
fn ocsf_events_fit_the_published_schema() {
    let ground = ground();
    let count = all(&ground).len();
    assert_eq!(check(&ground, "ocsf", include_str!("ocsf.py"), "ocsf.py"), format!("ok {count}\n"));
}

#[test]
fn in_toto_statements_are_taken_by_in_toto_and_signed() {
    let ground = ground();
    let count = all(&ground).len();
    assert_eq!(check(&ground, "intoto", include_str!("intoto.py"), "intoto.py"), format!("ok {count}\n"));
}

#[test]
fn a_script_written_from_the_page_alone_takes_an_export_of_real_runs() {
    let ground = ground();
    let count = all(&ground).len();
    let file = ground.base.join("export.jsonl");
    assert_eq!(receipts(&ground, &["export", "--output", file.to_str().expect("a path")]).code, Some(0));
    let script = std::fs::canonicalize("../stockade-ledger/tests/verify_export.py").expect("tests run in their package");
    let mut command = ground.outside("python3");
    command.arg("-B").arg(script).arg(ground.state.join("stockade/receipts/key.pub.pem")).arg(&file);
    if let Some(packages) = packages() {
        command.env("PYTHONPATH", packages);
    }
    let outcome = finish(&mut command);
    assert!(outcome.code == Some(0) && outcome.stdout.contains(&format!("ok: {count} receipts")), "{outcome:?}");
}
