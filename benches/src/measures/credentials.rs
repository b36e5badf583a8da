//! What a credential that is at hand adds to a call: a ticket, the registration over a connection that is there, egress's own connection and the value, and
//! the end of it; beside a plain fork+exec+wait.
//!
//! The broker serves from threads of this process, over the socket and with the messages that a server's own has.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use stockade_broker::broker::{Broker, SandboxLabel, Wish};
use stockade_broker::client::{Lookup, Owner};
use stockade_broker::peer::Only;
use stockade_broker::server::{self, Made};
use stockade_broker::sources::Surroundings;
use stockade_broker::store::Store;
use stockade_core::credential::Class;
use stockade_core::id::SandboxId;
use stockade_store::settings::{SecretSetting, SecretSource};

use super::{Course, Measure, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::results::{Section, Table, Unit, Verdict};
use crate::spawn;

const AT_HAND: &str = "stockade, a credential at hand";
const SPAWN: &str = "fork, exec and wait of /bin/true";
/// The promise, in milliseconds.
const BOUND: f64 = 0.2;
const NAME: &str = "TOKEN";

const ABOUT: &str = "A credential that was minted before and is still good, from the server's side of a call: sign a ticket, register the sandbox over \
a connection that an earlier call had, connect as egress with its pass, have the value, and forget the sandbox.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Credentials.section(ABOUT);
    let table = at_hand(course).map_err(Failure::Decisions)?;
    let figure = table.summary(AT_HAND).map(p50);
    section.tables.push(table);
    Ok((section, vec![Verdict::figure_at_most("what a credential at hand adds to a call, p50", BOUND, "ms", figure)]))
}

fn at_hand(course: &Course<'_>) -> Result<Table, String> {
    #[expect(clippy::needless_pass_by_value, reason = "it is called with errors that are done with")]
    fn said(error: impl ToString) -> String {
        error.to_string()
    }
    let base = course.ground.path().join("broker");
    std::fs::create_dir_all(&base).map_err(said)?;
    let printed = r#"{"value": "a-token-that-a-program-printed", "expires": "2100-01-01T00:00:00Z"}"#;
    let argv = ["/bin/echo", printed].map(str::to_owned).to_vec();
    let name: stockade_broker::SecretName = NAME.parse().map_err(said)?;
    let settings = vec![SecretSetting::new(name.clone(), SecretSource::Command { argv })];
    let around = Surroundings { store: Store::beneath(&base.join("state")), path: "/usr/bin:/bin".into(), home: base.clone() };
    let broker = Arc::new(Broker::new(settings, around));
    let socket = base.join("socket");
    let listener = UnixListener::bind(&socket).map_err(said)?;
    let (ours, theirs) = UnixStream::pair().map_err(said)?;
    let (first, rest) = (Arc::clone(&broker), Arc::clone(&broker));
    let only = Some(Only::who_made(&theirs).map_err(said)?);
    // Both end with this process.
    std::thread::spawn(move || drop(server::serve(&first, theirs, Made::ForOwner)));
    std::thread::spawn(move || drop(server::listen(&rest, listener, only)));
    let founder = Owner::connect(ours).map_err(said)?;
    // A server keeps the connection of a call that is over for the next one.
    let mut owner = Owner::join(UnixStream::connect(&socket).map_err(said)?, founder.signer()).map_err(said)?;
    let mut number = 0;
    let call = || {
        number += 1;
        let sandbox = SandboxLabel::from(&SandboxId::from_parts(1, number));
        let binding = format!("{NAME}@api.example").parse().map_err(said)?;
        let begin = Instant::now();
        let wishes = vec![Wish { binding, caller: None, class: Class::ProxyOnly, behind: Vec::new() }];
        let given = owner.register(&sandbox, "bench", wishes).map_err(said)?;
        let lookup = Lookup::connect(UnixStream::connect(&socket).map_err(said)?, Some(given.pass)).map_err(said)?;
        lookup.value_blocking(&sandbox, &name).map_err(said)?;
        owner.leave(&sandbox).map_err(said)?;
        Ok(begin.elapsed())
    };
    let contestants = vec![
        Contestant::new(AT_HAND, call).in_every_round(),
        Contestant::new(SPAWN, || spawn::timed(&mut spawn::bound_to_us(Path::new("/bin/true")))),
    ];
    let rows = contest(contestants, course.rounds, Condition::Idle).map_err(|failure| failure.to_string())?;
    Ok(Table { title: "A credential at hand".to_owned(), unit: Unit::Milliseconds, reference: Some(SPAWN.to_owned()), rows })
}
