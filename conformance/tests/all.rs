//! The suite on every wall: what is observed is what the cases expect, and what the committed page says.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use stockade_conformance::target::Target;
use stockade_conformance::{case, deviations, observe, page};

const RUNNER: &str = env!("CARGO_BIN_EXE_stockade-conformance");
const PAGE: &str = include_str!("../RESULTS.md");

/// Runs everything on one wall and holds it against the cases and the page.
fn check(target: Target) {
    let cases = case::all().unwrap();
    let observed = observe(target, Path::new(RUNNER), "").unwrap();
    let wrong = deviations(&cases, target, &observed);
    assert!(wrong.is_empty(), "{} of {} cases deviate on {}:\n{}", wrong.len(), cases.len(), target.name(), wrong.join("\n"));
    let written = page::column(&cases, &observed) == page::read_column(PAGE, &cases, target);
    assert!(written, "conformance/RESULTS.md is not what was observed on {}: cargo xtask conformance", target.name());
}

#[test]
fn the_jail_started_by_root() {
    check(Target::JailRoot);
}

#[test]
fn the_jail_started_by_an_ordinary_user() {
    check(Target::JailUser);
}

#[test]
fn the_jail_started_by_root_over_the_stream_alone() {
    check(Target::StreamRoot);
}

#[test]
fn the_jail_started_by_an_ordinary_user_over_the_stream_alone() {
    check(Target::StreamUser);
}

#[test]
fn the_jail_cloned_from_a_template_by_root() {
    check(Target::TemplateRoot);
}

#[test]
fn the_jail_cloned_from_a_template_by_an_ordinary_user() {
    check(Target::TemplateUser);
}

#[test]
fn without_a_wall_escapes_succeed() {
    check(Target::Local);
}

#[test]
fn bubblewrap_as_a_control() {
    check(Target::Bubblewrap);
}

#[test]
fn the_page_is_what_the_suite_would_write() {
    let cases = case::all().unwrap();
    let columns: Vec<page::Column> = Target::ALL.iter().map(|target| page::read_column(PAGE, &cases, *target)).collect();
    assert_eq!(page::render(&cases, &columns, &page::versions_of(PAGE)), PAGE, "cargo xtask conformance writes it");
}
