//! The official MCP conformance suite, the release and the one to come, in both eras: against the fixture with every scenario that a revision
//! requires, and against the program itself with those that need no fixture.

use std::path::PathBuf;
use std::sync::Arc;

use stockade_http::{Door, TokenFile};

use super::DEVELOPER;
use super::fixture::Fixture;
use super::relay::relay;
use super::server::Server;
use crate::Outcome;
use crate::mcp::rules;
use crate::wall::Who;
use crate::wall::ground::{Ground, finish_within};

/// All scenarios of one revision take some seconds; many of them wait.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(4);

#[expect(clippy::disallowed_methods, reason = "where clients are installed is the caller's to say")]
fn installed(name: &str) -> PathBuf {
    let named = std::env::var_os("STOCKADE_TEST_AGENTS").map(PathBuf::from);
    let tools = named.unwrap_or_else(|| panic!("STOCKADE_TEST_AGENTS is not set: `cargo xtask test` installs the clients and sets it"));
    tools.join(name)
}

/// Runs the suite as an ordinary user.
fn suite(ground: &Ground, name: &str, url: &str, flags: &[&str]) -> Outcome {
    let program = installed(name).join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = ground.outside(installed("node").join("node_modules/node/bin/node"));
    command.arg(program).args(["server", "--url", url]).args(flags);
    finish_within(&mut command, PATIENCE)
}

/// Passes with so many scenarios. Tasks are an extension that the program does not have, and no revision requires.
fn passes(outcome: &Outcome, scenarios: usize) {
    let counted = |line: &&str| line.starts_with(['✓', '✗']) && !line.contains(" tasks-");
    let lines: Vec<&str> = outcome.stdout.lines().filter(counted).collect();
    let failed: Vec<&&str> = lines.iter().filter(|line| line.starts_with('✗') || !line.contains(", 0 failed")).collect();
    assert!(outcome.code == Some(0) && failed.is_empty(), "{failed:#?}\n{}\n{}", outcome.stdout, outcome.stderr);
    assert!(lines.len() >= scenarios, "only {} of {scenarios}: {}", lines.len(), outcome.stdout);
}

/// The fixture behind the door, and a relay in front of it, for as long as the test goes on.
fn against_the_fixture(name: &str, flags: &[&str], scenarios: usize) {
    let ground = Ground::new(Who::Ordinary);
    let directory = ground.base.join("outside");
    let (token, fresh) = TokenFile::open(&directory).expect("a token");
    let fresh = fresh.expect("a new token");
    let door = Door::open("127.0.0.1:0".parse().expect("an address"), None, token).expect("a port");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let address = runtime.block_on(relay(door.address().port(), fresh.reveal()));
    runtime.spawn(door.serve(|| Fixture, Arc::default(), std::future::pending(), std::future::ready(())));
    let outcome = suite(&ground, name, &format!("http://{address}/mcp"), flags);
    passes(&outcome, scenarios);
}

#[test]
fn the_released_suite_passes() {
    against_the_fixture("conformance", &[], 30);
}

#[test]
fn everything_that_2025_11_25_requires_passes() {
    against_the_fixture("conformance-next", &["--requirements", "2025-11-25"], 30);
}

#[test]
fn everything_that_2026_07_28_requires_passes() {
    against_the_fixture("conformance-next", &["--requirements", "2026-07-28"], 37);
}

#[test]
fn the_program_passes_what_needs_no_fixture() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let address = runtime.block_on(relay(server.port, &server.token));
    let url = format!("http://{address}/mcp");
    for (version, scenarios) in [
        ("2025-11-25", &["server-initialize", "server-session-lifecycle", "ping", "tools-list", "dns-rebinding-protection"][..]),
        ("2026-07-28", &["tools-list", "caching", "http-header-validation", "dns-rebinding-protection"][..]),
    ] {
        for scenario in scenarios {
            let outcome = suite(&ground, "conformance-next", &url, &["--scenario", scenario, "--spec-version", version]);
            assert_eq!(outcome.code, Some(0), "{version} {scenario}: {}\n{}", outcome.stdout, outcome.stderr);
        }
    }
}
