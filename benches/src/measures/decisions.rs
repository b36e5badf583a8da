//! How long the rules take to decide, next to Cedar alone on the same rules, and how long packs take to load.
//!
//! In this process, warm: what a daemon pays for each call. Each sample is the mean of a few decisions in a row, so that the clock's own
//! cost does not count.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use cedar_policy::{Authorizer, Context, Entities, EntityUid, PolicySet, Request as Question, RestrictedExpression};
use serde_json::{Map, Value};
use stockade_policy::capability::{Capability, Invocation, Lexical};
use stockade_policy::pack::{Pack, SIGNATURE, SigningKey};
use stockade_policy::shell::{ByName, classify};
use stockade_policy::{Checks, Floor, Layer, Policies, PolicyFile, Principal, Request, Trust, Verdict as Said};
use stockade_store::packs::{Downgrade, Packs, Publishers, Unsigned, check, install, read_directory, sign};
use stockade_store::places::Places;

use super::{Course, Measure, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::results::{Section, Table, Unit, Verdict};

const CALL: &str = "stockade, a capability call";
const SCRIPT: &str = "stockade, a script of 20 commands";
const CEDAR_CALL: &str = "Cedar alone, one request";
const CEDAR_SCRIPT: &str = "Cedar alone, 20 requests";
const COLD: &str = "verified from the beginning";
const KNOWN: &str = "from what is known";
/// The promises, in microseconds and in milliseconds.
const BOUND_CALL: f64 = 50.0;
const BOUND_SCRIPT: f64 = 300.0;
const BOUND_COLD: f64 = 20.0;
const BOUND_KNOWN: f64 = 2.0;

const RULES: usize = 200;
const IN_A_ROW: u32 = 20;
const PACKS: usize = 20;
const CAPABILITIES: usize = 15;
const HERE: ByName<'static> = ByName { directory: "/w" };
/// What is younger is not remembered, because it could change within one tick of a file system's clock.
const OLD_ENOUGH: Duration = Duration::from_millis(3100);

const ABOUT: &str = "With 200 rules, in this process, warm. A capability call is its inputs checked, defaults filled in, its argument list made and \
the rules asked; a script is parsed, every command in it found, and the rules asked for each. Cedar alone is asked the same rules as one set, its \
request made beforehand. Packs: 20 signed ones with 300 capabilities on disk, in the page cache.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Decisions.section(ABOUT);
    let decisions = decisions(course).map_err(Failure::Decisions)?;
    let packs = packs(course).map_err(Failure::Decisions)?;
    let of = |table: &Table, name: &str| table.summary(name).map(p50);
    let verdicts = vec![
        Verdict::figure_at_most("decision for a capability call with 200 rules, p50", BOUND_CALL, "µs", of(&decisions, CALL)),
        Verdict::figure_at_most("decision for a script of 20 commands with 200 rules, p50", BOUND_SCRIPT, "µs", of(&decisions, SCRIPT)),
        Verdict::figure_at_most("loading 20 packs with 300 capabilities, cold, p50", BOUND_COLD, "ms", of(&packs, COLD)),
        Verdict::figure_at_most("loading 20 packs with 300 capabilities, from a verified cache, p50", BOUND_KNOWN, "ms", of(&packs, KNOWN)),
    ];
    section.tables.extend([decisions, packs]);
    Ok((section, verdicts))
}

fn decisions(course: &Course<'_>) -> Result<Table, String> {
    let capabilities = Packs::load(&places(&course.ground.path().join("built-in"))).map_err(|error| error.to_string())?;
    let text = rules();
    let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "bench.cedar".into(), text: text.clone() };
    let policies = Policies::compile_with(&[file], Checks::All, &capabilities.vocabulary()).map_err(|faults| faults.to_string())?;
    let agent = Principal::agent("claude/main");
    let (pack, capability) = capabilities.capability("git.log").map_err(|error| error.to_string())?;
    let facts = capability.facts(&pack.name);
    let call = || {
        let prepared =
            capability.prepare(black_box(inputs(&capability)), &Lexical { workspace: "/w" }).map_err(|refused| refused.to_string())?;
        let invocation = Invocation {
            capability: &facts,
            values: &prepared.values,
            workspace: "/w",
            backend: "jail",
            network: &[],
            time: "2026-01-01T00:00:00Z",
        };
        permitted(policies.decide(&agent, &Request::Invoke(&invocation), Floor::Deny).verdict)
    };
    let twenty = script();
    let script = || {
        let judged = policies.judge(&agent, &classify(black_box(&twenty), &HERE), Floor::Deny);
        if judged.commands.len() == 20 { permitted(judged.decision.verdict) } else { Err(format!("{} commands", judged.commands.len())) }
    };
    let set: PolicySet = text.parse().map_err(|error: cedar_policy::ParseErrors| error.to_string())?;
    let question = question()?;
    let (authorizer, nothing) = (Authorizer::new(), Entities::empty());
    let cedar = || {
        black_box(authorizer.is_authorized(black_box(&question), &set, &nothing));
        Ok(())
    };
    let contestants = vec![
        repeated(CEDAR_CALL, cedar),
        repeated(CALL, call),
        repeated(CEDAR_SCRIPT, || (0..20).try_for_each(|_| cedar())),
        repeated(SCRIPT, script),
    ];
    let rows = contest(contestants, course.rounds, Condition::Idle).map_err(|failure| failure.to_string())?;
    Ok(Table { title: format!("{RULES} rules"), unit: Unit::Microseconds, reference: Some(CEDAR_CALL.into()), rows })
}

/// Decisions in a row, one of which is timed, in thousandths of the table's unit.
fn repeated<'a>(name: &str, act: impl Fn() -> Result<(), String> + 'a) -> Contestant<'a> {
    Contestant::new(name, move || {
        act()?;
        let begin = Instant::now();
        for _ in 0..IN_A_ROW {
            act()?;
        }
        // The harness counts in milliseconds; these are microseconds.
        Ok(begin.elapsed() / IN_A_ROW * 1000)
    })
}

fn permitted(verdict: Said) -> Result<(), String> {
    if verdict == Said::Allow { Ok(()) } else { Err(format!("the rules said {}", verdict.name())) }
}

fn inputs(capability: &Capability) -> Map<String, Value> {
    let names = capability.input.properties();
    [("max_count", Value::from(5)), ("oneline", Value::Bool(true))]
        .into_iter()
        .filter(|(name, _)| names.contains_key(*name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Most rules name their program or capability, as people write them; some do not.
fn rules() -> String {
    let programs = ["git", "cargo", "ls", "cat", "grep", "sed", "npm", "make", "find", "wc"];
    let exec = "action == Stockade::Action::\"exec\"";
    let rule = |n: usize| {
        let program = programs.get(n % programs.len()).copied().unwrap_or("ls");
        match n {
            n if n < programs.len() => format!(
                "permit (principal is Stockade::Agent, {exec}, resource == Stockade::Program::\"{program}\") unless {{ context.flags.contains(\"--never-{n}\") }};"
            ),
            10 => "permit (principal is Stockade::Agent, action == Stockade::Action::\"git.log\", resource == Stockade::Capability::\"git.log\");".to_owned(),
            n if n % 10 == 0 => format!("forbid (principal, {exec}, resource) when {{ context.operands.contains(\"/secret/{n}\") }};"),
            n if n % 10 == 1 => format!(
                "permit (principal is Stockade::Agent, {exec}, resource) when {{ resource in [Stockade::Program::\"x{n}\", Stockade::Program::\"y{n}\"] }};"
            ),
            n if n % 10 == 2 => format!(
                "permit (principal is Stockade::Agent, action == Stockade::Action::\"connect\", resource == Stockade::Host::\"h{n}.example\") when {{ context.tls }};"
            ),
            n if n % 3 == 0 => format!(
                "forbid (principal is Stockade::Agent, {exec}, resource == Stockade::Program::\"{program}\") when {{ context.flags.contains(\"--danger-{n}\") }};"
            ),
            n => format!(
                "permit (principal is Stockade::Agent, {exec}, resource == Stockade::Program::\"tool{n}\") when {{ [\"show\", \"list\"].contains(context.subcommand) && !context.opaque }};"
            ),
        }
    };
    (0..RULES).map(|n| rule(n) + "\n").collect()
}

/// Twenty commands, in the ways people nest them.
fn script() -> String {
    let lines = [
        "git status --short && git log --oneline -5",
        "for f in src/*.rs; do wc -l \"$f\"; done | sed 's/^ *//'",
        "if grep -q main Cargo.toml; then cargo test --workspace; else make all; fi",
        "find . -name '*.md' | grep -v target | wc -l",
        "cat README.md | sed -n 1,20p > head.txt",
        "(ls -la; cat \"$(git ls-files | grep Cargo)\")",
        "npm run build; make check; git diff --stat; ls src",
    ];
    lines.join("\n")
}

fn question() -> Result<Question, String> {
    let uid = |text: &str| text.parse::<EntityUid>().map_err(|error| error.to_string());
    let text = |value: &str| RestrictedExpression::new_string(value.to_owned());
    let set = |values: &[&str]| RestrictedExpression::new_set(values.iter().map(|value| text(value)));
    let context = Context::from_pairs([
        ("subcommand".to_owned(), text("log")),
        ("flags".to_owned(), set(&["--oneline", "-5"])),
        ("operands".to_owned(), set(&["main"])),
        ("count".to_owned(), RestrictedExpression::new_long(4)),
        ("opaque".to_owned(), RestrictedExpression::new_bool(false)),
        ("reads".to_owned(), set(&[])),
        ("writes".to_owned(), set(&[])),
    ]);
    let (who, what, which) =
        (uid("Stockade::Agent::\"claude/main\"")?, uid("Stockade::Action::\"exec\"")?, uid("Stockade::Program::\"git\"")?);
    Question::new(who, what, which, context.map_err(|error| error.to_string())?, None).map_err(|error| error.to_string())
}

fn places(base: &Path) -> Places {
    let at = |name: &str| base.join(name);
    Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("etc") }
}

fn packs(course: &Course<'_>) -> Result<Table, String> {
    let base = course.ground.path().join("packs");
    let places = places(&base);
    make_packs(&base, &places)?;
    std::thread::sleep(OLD_ENOUGH);
    let publishers = Publishers::load(&places).map_err(|error| error.to_string())?;
    let load = || {
        let begin = Instant::now();
        let packs = Packs::load(&places).map_err(|error| error.to_string())?;
        let took = begin.elapsed();
        let ours = packs.packs.iter().filter(|pack| pack.name.as_str().starts_with("pack-"));
        let count: usize = ours.map(|pack| pack.capabilities.len()).sum();
        if count == PACKS * CAPABILITIES { Ok(took) } else { Err(format!("{count} capabilities were loaded")) }
    };
    let contestants = vec![
        Contestant::new(COLD, || {
            // Where the keys are others, whatever was verified with those before does not count.
            publishers.store(&places).map_err(|error| error.to_string())?;
            load()
        }),
        Contestant::new(KNOWN, || {
            load()?;
            load()
        }),
    ];
    let rows = contest(contestants, course.rounds, Condition::Idle).map_err(|failure| failure.to_string())?;
    let title = format!("{PACKS} packs with {} capabilities", PACKS * CAPABILITIES);
    Ok(Table { title, unit: Unit::Milliseconds, reference: None, rows })
}

/// Packs of the usual size, signed and installed.
fn make_packs(base: &Path, places: &Places) -> Result<(), String> {
    let one = include_str!("../../../packs/git/capabilities/git.log.toml");
    let key = SigningKey::from_seed([1; 32]);
    let public = || key.public().map_err(|error| error.to_string());
    let mut publishers = Publishers::default();
    publishers.add("acme".parse().map_err(|_| "a publisher's name")?, public()?).map_err(|error| error.to_string())?;
    publishers.store(places).map_err(|error| error.to_string())?;
    for pack in 0..PACKS {
        let directory = base.join(format!("source-{pack}"));
        let write = |name: &str, text: &[u8]| std::fs::write(directory.join(name), text).map_err(|error| error.to_string());
        std::fs::create_dir_all(directory.join("capabilities")).map_err(|error| error.to_string())?;
        let manifest = format!("name = \"pack-{pack}\"\nversion = \"1.0.0\"\ndescription = \"d\"\npublisher = \"acme\"\n");
        write("pack.toml", manifest.as_bytes())?;
        for number in 0..CAPABILITIES {
            let name = format!("pack{pack}.log{number}");
            write(&format!("capabilities/{name}.toml"), one.replace("git.log", &name).as_bytes())?;
        }
        let files = read_directory(&directory).map_err(|error| error.to_string())?;
        let read = Pack::read(&files, "").map_err(|faults| format!("{faults:?}"))?;
        write(SIGNATURE, &sign(&files, &read.manifest, &key, public()?.id()))?;
        let checked = check(places, &directory, Unsigned::Refuse).map_err(|error| error.to_string())?;
        install(places, &checked, Downgrade::Refuse).map_err(|error| error.to_string())?;
    }
    Ok(())
}
