//! Requests from filing to use, with a clock of their own.

use std::path::Path;

use stockade_store::places::Places;

use super::store::{APPROVED_FOR, DENIED_FOR, PENDING_FOR};
use super::*;
use crate::approver::{Approver, Credential, CredentialError, Way};

const NOW: i64 = 1_800_000_000;

fn call(word: &str) -> Bound {
    Bound {
        principal: "Human::\"me\"".to_owned(),
        wanted: Wanted::Program(vec![b"git".to_vec(), word.as_bytes().to_vec()]),
        effect: "write".to_owned(),
        programs: vec![BoundFile { path: "/usr/bin/git".into(), contents: Contents::Sha256("00".repeat(32)) }],
        cwd: "/work".into(),
        environment: vec![Variable { name: "A".to_owned(), value: b"1".to_vec(), visibility: Visibility::Whole }],
        input: Input::Nothing,
        operands: vec![BoundFile { path: "/work/x".into(), contents: Contents::Sha256("11".repeat(32)) }],
        credentials: vec!["TOKEN for example.com".to_owned()],
        policy: "22".repeat(32),
        sandbox: "{}".to_owned(),
        surroundings: vec![("workspace".to_owned(), "/work (overlay)".to_owned())],
        because: vec!["git: look first (ask)".to_owned()],
    }
}

fn settle(store: &mut Store, bound: &Bound, credential: Option<&Credential>, now: i64) -> Result<Settled, ApprovalError> {
    let shown = bound.shown();
    store.settle(
        &Asking { bound, title: &bound.title(), shown: &shown, session: Some("s1"), rules: &["permit".to_owned()], receipt: "r" },
        credential,
        Otherwise::File,
        now,
    )
}

fn waits(settled: Result<Settled, ApprovalError>) -> Waiting {
    match settled {
        Ok(Settled::Waits(waiting)) => waiting,
        other => panic!("{other:?}"),
    }
}

fn id(waiting: &Waiting) -> RequestId {
    RequestId::parse(&waiting.id).unwrap()
}

/// A person looks at what waits, and says yes.
fn approve(store: &mut Store, waiting: &Waiting, scope: Scope, decider: &Decider, now: i64) -> Result<Request, ApprovalError> {
    let seen = store.request(&id(waiting), now)?;
    store.approve(&seen, scope, decider, now)
}

fn me() -> Decider {
    Decider { by: "me".to_owned(), approver: None }
}

fn places(root: &Path) -> Places {
    let at = |name: &str| root.join(name);
    Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("machine") }
}

#[test]
fn an_approval_is_used_once() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = waits(settle(&mut store, &call("push"), None, NOW));
    assert_eq!((first.times, first.void.clone()), (1, None));
    let again = waits(settle(&mut store, &call("push"), None, NOW + 5));
    assert_eq!((&again.id, again.times), (&first.id, 2), "the same call is one request");
    let other = waits(settle(&mut store, &call("pull"), None, NOW + 5));
    assert_ne!(other.id, first.id);
    let approved = approve(&mut store, &first, Scope::Once, &me(), NOW + 10).unwrap();
    assert_eq!((approved.state, approved.by.as_deref(), approved.method.as_deref()), (State::Approved, Some("me"), Some("same-uid")));
    let Ok(Settled::Approved(warrant)) = settle(&mut store, &call("push"), None, NOW + 20) else { panic!() };
    assert_eq!((warrant.id, warrant.by.as_str(), warrant.method.as_str()), (first.id.clone(), "me", "same-uid"));
    assert_eq!(store.request(&id(&first), NOW + 20).unwrap().state, State::Used);
    let next = waits(settle(&mut store, &call("push"), None, NOW + 20));
    assert_ne!(next.id, first.id, "used up: another request");
    let late = approve(&mut store, &first, Scope::Once, &me(), NOW + 30);
    assert!(matches!(late, Err(ApprovalError::Decided { state: State::Used, .. })), "{late:?}");
}

#[test]
fn whoever_is_here_to_be_asked_files_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let (bound, shown) = (call("push"), call("push").shown());
    let asking = Asking { bound: &bound, title: "t", shown: &shown, session: None, rules: &[], receipt: "r" };
    assert_eq!(store.settle(&asking, None, Otherwise::Leave, NOW).unwrap(), Settled::Open);
    assert!(store.requests(NOW).unwrap().is_empty());
    let first = waits(settle(&mut store, &bound, None, NOW));
    store.deny(&id(&first), "me", Method::SameUid, NOW).unwrap();
    assert_eq!(store.settle(&asking, None, Otherwise::Leave, NOW).unwrap(), Settled::Open, "a person may change their mind");
    let other = waits(settle(&mut store, &call("pull"), None, NOW));
    approve(&mut store, &other, Scope::Once, &me(), NOW).unwrap();
    let (bound, shown) = (call("pull"), call("pull").shown());
    let asking = Asking { bound: &bound, shown: &shown, ..asking };
    assert!(matches!(store.settle(&asking, None, Otherwise::Leave, NOW), Ok(Settled::Approved(_))));
}

#[test]
fn whatever_changes_makes_another_request() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = waits(settle(&mut store, &call("push"), None, NOW));
    approve(&mut store, &first, Scope::Once, &me(), NOW).unwrap();
    let changes: [fn(&mut Bound); 17] = [
        |b| b.principal = "Agent::\"me\"".to_owned(),
        |b| b.wanted = Wanted::Program(vec![b"gitpush".to_vec()]),
        |b| b.wanted = Wanted::Program(vec![b"git".to_vec(), b"push".to_vec(), Vec::new()]),
        |b| b.wanted = Wanted::Script { script: b"git push".to_vec(), argv: Vec::new() },
        |b| b.effect = "read".to_owned(),
        |b| b.programs[0].path = "/usr/local/bin/git".into(),
        |b| b.programs[0].contents = Contents::Sha256("01".repeat(32)),
        |b| b.cwd = "/work/sub".into(),
        |b| b.environment[0].value = b"2".to_vec(),
        |b| b.environment.push(Variable { name: "B".to_owned(), value: Vec::new(), visibility: Visibility::Usual }),
        |b| b.input = Input::Bytes { length: 0, sha256: "33".repeat(32) },
        |b| b.operands[0].contents = Contents::Directory,
        |b| b.operands.clear(),
        |b| b.credentials[0] = "TOKEN for evil.example".to_owned(),
        |b| b.policy = "23".repeat(32),
        |b| b.sandbox = "{\"x\":1}".to_owned(),
        |b| b.surroundings[0].1 = "/work (rw)".to_owned(),
    ];
    let mut ids = std::collections::BTreeSet::from([first.id.clone()]);
    for change in changes {
        let mut bound = call("push");
        change(&mut bound);
        assert!(ids.insert(waits(settle(&mut store, &bound, None, NOW)).id), "{bound:?}");
    }
    assert!(matches!(settle(&mut store, &call("push"), None, NOW), Ok(Settled::Approved(_))));
}

#[test]
fn a_no_stands_for_a_while_and_takes_back_a_yes() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = waits(settle(&mut store, &call("push"), None, NOW));
    approve(&mut store, &first, Scope::Once, &me(), NOW).unwrap();
    store.deny(&id(&first), "me", Method::SameUid, NOW).unwrap();
    let denied = settle(&mut store, &call("push"), None, NOW + 1).unwrap();
    assert_eq!(denied, Settled::Denied { id: first.id.clone(), by: "me".to_owned(), until: NOW + DENIED_FOR });
    assert!(matches!(store.deny(&id(&first), "me", Method::SameUid, NOW), Err(ApprovalError::Decided { .. })));
    assert_ne!(waits(settle(&mut store, &call("push"), None, NOW + DENIED_FOR)).id, first.id);
}

#[test]
fn time_ends_everything_and_never_runs_back() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = waits(settle(&mut store, &call("push"), None, NOW));
    let late = approve(&mut store, &first, Scope::Once, &me(), NOW + PENDING_FOR);
    assert!(matches!(late, Err(ApprovalError::Decided { state: State::Expired, .. })), "{late:?}");
    let now = NOW + PENDING_FOR;
    let second = waits(settle(&mut store, &call("push"), None, now));
    approve(&mut store, &second, Scope::Once, &me(), now).unwrap();
    let third = waits(settle(&mut store, &call("push"), None, now + APPROVED_FOR));
    assert_ne!(third.id, second.id, "an approval that nobody used in time is over");
    let now = now + APPROVED_FOR;
    approve(&mut store, &third, Scope::Once, &me(), now).unwrap();
    let other = waits(settle(&mut store, &call("pull"), None, now));
    approve(&mut store, &other, Scope::For(600), &me(), now).unwrap();
    // The clock goes back a day: whatever was approved is over.
    assert!(matches!(settle(&mut store, &call("push"), None, now - 86_400), Ok(Settled::Waits(_))));
    assert!(matches!(settle(&mut store, &call("pull"), None, now - 86_400), Ok(Settled::Waits(_))));
}

#[test]
fn grants_are_used_often_by_their_session_until_they_end() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = waits(settle(&mut store, &call("push"), None, NOW));
    assert_eq!(approve(&mut store, &first, Scope::For(600), &me(), NOW).unwrap().state, State::Granted);
    for at in 0..3 {
        assert!(matches!(settle(&mut store, &call("push"), None, NOW + at), Ok(Settled::Approved(_))));
    }
    assert_eq!(store.grants(NOW).unwrap().iter().map(|grant| (grant.id.clone(), grant.uses)).collect::<Vec<_>>(), [(first.id, 3)]);
    assert!(matches!(settle(&mut store, &call("push"), None, NOW + 600), Ok(Settled::Waits(_))), "it ended");
    assert!(store.grants(NOW + 600).unwrap().is_empty());

    let second = waits(settle(&mut store, &call("pull"), None, NOW + 600));
    approve(&mut store, &second, Scope::Session, &me(), NOW + 600).unwrap();
    assert!(matches!(settle(&mut store, &call("pull"), None, NOW + 601), Ok(Settled::Approved(_))));
    let (bound, shown) = (call("pull"), call("pull").shown());
    for session in [Some("s2"), None] {
        let elsewhere = Asking { bound: &bound, title: "t", shown: &shown, session, rules: &[], receipt: "r" };
        assert!(matches!(store.settle(&elsewhere, None, Otherwise::File, NOW + 601), Ok(Settled::Waits(_))), "{session:?}");
    }
    assert_eq!(store.revoke(&id(&second), NOW + 602).unwrap().uses, 1);
    assert!(matches!(store.revoke(&id(&second), NOW + 602), Err(ApprovalError::NoGrant(_))));
    assert!(matches!(settle(&mut store, &call("pull"), None, NOW + 603), Ok(Settled::Waits(_))));
    let third = waits(settle(&mut store, &call("fetch"), None, NOW + 603));
    let long = approve(&mut store, &third, Scope::For(365 * 86_400), &me(), NOW + 603);
    assert!(matches!(long, Err(ApprovalError::LongGrant(_))));
}

#[test]
fn what_cannot_be_undone_needs_a_credential() {
    let root = tempfile::tempdir().unwrap();
    let places = places(root.path());
    let mut store = Store::open(&places.state).unwrap();
    let bound = Bound { effect: "destructive".to_owned(), ..call("push") };
    let first = waits(settle(&mut store, &bound, None, NOW));
    for scope in [Scope::Once, Scope::Session, Scope::For(60)] {
        assert!(matches!(approve(&mut store, &first, scope, &me(), NOW), Err(ApprovalError::NeedsCredential)));
    }
    // Written into the file by hand it does not count either.
    store.connection.execute("UPDATE requests SET state = 'approved', decided = 1, decided_by = 'me', method = 'same-uid'", []).unwrap();
    assert!(waits(settle(&mut store, &bound, None, NOW)).void.is_some());
    let credential = Credential::set(&places, b"correct horse").unwrap();
    let approver = credential.open(b"correct horse", &mut store, Way::Terminal, NOW).unwrap();
    let second = waits(settle(&mut store, &bound, Some(&credential), NOW));
    approve(&mut store, &second, Scope::Once, &Decider { by: "me".to_owned(), approver: Some(approver) }, NOW).unwrap();
    let Ok(Settled::Approved(warrant)) = settle(&mut store, &bound, Some(&credential), NOW) else { panic!() };
    assert_eq!(warrant.method, "passphrase");
}

/// Whoever can write the file and does not know the passphrase gains nothing.
#[test]
fn with_a_credential_what_is_written_by_hand_does_not_count() {
    let root = tempfile::tempdir().unwrap();
    let places = places(root.path());
    let mut store = Store::open(&places.state).unwrap();
    let credential = Credential::set(&places, b"correct horse").unwrap();
    let decider =
        Decider { by: "me".to_owned(), approver: Some(credential.open(b"correct horse", &mut store, Way::Terminal, NOW).unwrap()) };
    let settle = |store: &mut Store, word: &str| settle(store, &call(word), Some(&credential), NOW);
    let forged = |store: &mut Store, word: &str, sql: &str| {
        waits(settle(store, word));
        assert!(store.connection.execute(sql, []).unwrap() > 0, "{sql}");
        let waiting = waits(settle(store, word));
        assert!(waiting.void.is_some(), "{sql}: {waiting:?}");
    };
    let by_hand = "UPDATE requests SET state = 'approved', decided = 1, decided_by = 'me', method = 'METHOD' WHERE state = 'pending'";
    forged(&mut store, "a", &by_hand.replace("METHOD", "same-uid"));
    forged(&mut store, "b", &by_hand.replace("METHOD", "passphrase"));
    // A real signature, moved to another call.
    let real = waits(settle(&mut store, "c"));
    approve(&mut store, &real, Scope::Once, &decider, NOW).unwrap();
    let moved = "UPDATE requests SET state = 'approved', decided = o.decided, expires = o.expires, decided_by = o.decided_by, method = o.method, \
                 signature = o.signature FROM (SELECT * FROM requests WHERE signature IS NOT NULL) AS o WHERE requests.state = 'pending'";
    forged(&mut store, "d", moved);
    // A used one, made new.
    assert!(matches!(settle(&mut store, "c"), Ok(Settled::Approved(_))));
    // Longer than it was given for.
    let short = waits(settle(&mut store, "e"));
    approve(&mut store, &short, Scope::Once, &decider, NOW).unwrap();
    store.connection.execute("UPDATE requests SET expires = expires + 1000 WHERE state = 'approved'", []).unwrap();
    assert!(waits(settle(&mut store, "e")).void.is_some());
    // A grant without a signature, or for longer.
    let grant = waits(settle(&mut store, "f"));
    approve(&mut store, &grant, Scope::For(60), &decider, NOW).unwrap();
    store.connection.execute("UPDATE grants SET expires = expires + 1000", []).unwrap();
    assert!(matches!(settle(&mut store, "f"), Ok(Settled::Waits(_))));
    // What a person is shown cannot be changed under its id.
    let shown = waits(settle(&mut store, "g"));
    store.connection.execute("UPDATE requests SET shown = 'harmless' WHERE state = 'pending'", []).unwrap();
    assert!(matches!(approve(&mut store, &shown, Scope::Once, &decider, NOW), Err(ApprovalError::Tampered(_))));
    store
        .connection
        .execute("UPDATE requests SET shown_sha256 = ?1 WHERE state = 'pending'", [super::binding::shown_sha256("harmless")])
        .unwrap();
    approve(&mut store, &shown, Scope::Once, &decider, NOW).unwrap();
    assert_eq!(waits(settle(&mut store, "g")).void.as_deref(), Some("what was shown is not this call"));
}

#[test]
fn many_requests_do_not_push_out_the_first() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = waits(settle(&mut store, &call("first"), None, NOW));
    for number in 1..MOST_PENDING {
        waits(settle(&mut store, &call(&number.to_string()), None, NOW + number));
    }
    assert!(matches!(settle(&mut store, &call("more"), None, NOW + 200), Err(ApprovalError::TooMany)));
    assert_eq!(waits(settle(&mut store, &call("first"), None, NOW + 200)).times, 2, "what waits is still counted");
    let all = store.requests(NOW + 200).unwrap();
    assert_eq!((all.len() as i64, &all[0].id), (MOST_PENDING, &first.id), "the oldest is at the top");
    store.deny(&id(&first), "me", Method::SameUid, NOW + 200).unwrap();
    waits(settle(&mut store, &call("more"), None, NOW + 200));
    let long = call(&"x".repeat(MOST_SHOWN));
    assert!(matches!(settle(&mut store, &long, None, NOW + 200), Err(ApprovalError::TooLong(_))));
}

/// One agent does not fill what all have, and all of them do not take the person's place.
#[test]
fn agents_keep_nobody_else_from_asking() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let of = |agent: i64, word: i64| Bound { principal: format!("Agent::\"a/{agent}\""), ..call(&word.to_string()) };
    for agent in 0..MOST_PENDING / MOST_OF_AGENT {
        for word in 0..MOST_OF_AGENT {
            waits(settle(&mut store, &of(agent, word), None, NOW));
        }
        let more = settle(&mut store, &of(agent, MOST_OF_AGENT), None, NOW);
        assert!(matches!(more, Err(ApprovalError::TooManyOfAgent)), "{more:?}");
    }
    assert!(matches!(settle(&mut store, &of(-1, 0), None, NOW), Err(ApprovalError::TooMany)));
    for number in 0..MOST_PENDING {
        waits(settle(&mut store, &call(&number.to_string()), None, NOW));
    }
    assert!(matches!(settle(&mut store, &call("more"), None, NOW), Err(ApprovalError::TooMany)));
    assert_eq!(store.pending(NOW).unwrap().len() as i64, 2 * MOST_PENDING, "all of them are shown");
}

#[test]
fn hostile_text_is_shown_whole_and_on_lines_of_its_own() {
    let hostile = format!("x\u{1b}[2K\rharmless\nwho         root\u{202e}\u{200b}{};rm", " ".repeat(20_000));
    let bound = Bound { because: vec![hostile.clone()], ..call(&hostile) };
    let shown = bound.shown();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "who         Human::\"me\"");
    assert_eq!(lines[2], "            | x\\u{1b}[2K\\rharmless\\nwho\\u{20}*9 root\\u{202e}\\u{200b}\\u{20}*20000 ;rm");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("who")).count(), 1, "{shown}");
    assert!(!bound.title().contains('\n') && bound.title().chars().count() <= 121);
    let script = Bound { wanted: Wanted::Script { script: b"ls\nrm -r x".to_vec(), argv: Vec::new() }, ..call("x") };
    assert!(script.shown().contains("script      | ls\n            | rm -r x\n"), "{}", script.shown());
}

/// Many threads, each with a connection of its own, try to use one approval.
#[test]
fn of_many_at_once_one_uses_it() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = waits(settle(&mut store, &call("push"), None, NOW));
    approve(&mut store, &first, Scope::Once, &me(), NOW).unwrap();
    let used = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..32)
            .map(|_| {
                scope.spawn(|| {
                    let mut store = Store::open(root.path()).unwrap();
                    matches!(settle(&mut store, &call("push"), None, NOW), Ok(Settled::Approved(_)))
                })
            })
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).filter(|used| *used).count()
    });
    assert_eq!(used, 1);
    assert_eq!(store.requests(NOW).unwrap().len(), 2, "the others are one request");
}

#[test]
fn a_file_of_another_version_or_of_nonsense_is_refused() {
    let root = tempfile::tempdir().unwrap();
    drop(Store::open(root.path()).unwrap());
    let path = root.path().join("approvals/approvals.db");
    let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Store::open(root.path()), Err(ApprovalError::Newer { version: 99, .. })));
    std::fs::write(&path, "this is no database, but long enough to be looked at".repeat(40)).unwrap();
    assert!(matches!(Store::open(root.path()), Err(ApprovalError::Database { .. })));
    let missing = tempfile::tempdir().unwrap();
    assert!(Store::open_existing(missing.path()).unwrap().is_none());
}

fn carried_wrong<T: std::fmt::Debug>(result: Result<T, ApprovalError>) -> &'static str {
    match result {
        Err(ApprovalError::Carried(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// What a client carries opens for its principal, for a while, and once, whoever has the file open meanwhile.
#[test]
fn what_is_carried_opens_once() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = id(&waits(settle(&mut store, &call("push"), None, NOW)));
    let (me, lasts) = ("Human::\"me\"", super::carried::LASTS);
    let sealed = store.seal(&first, NOW).unwrap();
    assert_ne!(sealed, store.seal(&first, NOW).unwrap());
    assert!(!sealed.contains(first.as_str()));
    carried_wrong(store.unseal(&sealed, "Agent::\"me\"", NOW));
    assert!(carried_wrong(store.unseal(&sealed, me, NOW + lasts)).contains("expired"));
    assert!(carried_wrong(store.unseal(&sealed, me, NOW - 600)).contains("expired"), "the clock went back");
    let other = tempfile::tempdir().unwrap();
    carried_wrong(Store::open(other.path()).unwrap().unseal(&sealed, me, NOW));
    // The clock that went back ended the request, not what was carried.
    let first = id(&waits(settle(&mut store, &call("push"), None, NOW)));
    let sealed = store.seal(&first, NOW).unwrap();
    assert_eq!(store.unseal(&sealed, me, NOW + 1).unwrap(), first);
    drop(store);
    let mut store = Store::open(root.path()).unwrap();
    assert!(carried_wrong(store.unseal(&sealed, me, NOW + 1)).contains("before"));
    store.deny(&first, "me", Method::SameUid, NOW + 1).unwrap();
    assert!(matches!(store.seal(&first, NOW + 1), Err(ApprovalError::Decided { .. })));
}

/// A client's yes is for the request that it was shown and the call that comes with it.
#[test]
fn a_consent_is_used_where_it_was_given() {
    let root = tempfile::tempdir().unwrap();
    let places = places(root.path());
    let mut store = Store::open(&places.state).unwrap();
    let consent = |store: &mut Store, bound: &Bound, id: &RequestId, credential: Option<&Credential>| {
        let shown = bound.shown();
        let asking = Asking { bound, title: "t", shown: &shown, session: None, rules: &[], receipt: "r" };
        store.settle(&asking, credential, Otherwise::Consented { id, by: "a/main" }, NOW)
    };
    let first = id(&waits(settle(&mut store, &call("push"), None, NOW)));
    let other = waits(consent(&mut store, &call("pull"), &first, None));
    assert_ne!(other.id, first.as_str(), "another call is another request");
    let Ok(Settled::Approved(warrant)) = consent(&mut store, &call("push"), &first, None) else { panic!() };
    assert_eq!((warrant.by.as_str(), warrant.method.as_str()), ("a/main", "elicitation"));
    assert_eq!(store.look(&first, NOW).unwrap().state, State::Used);
    assert_ne!(waits(consent(&mut store, &call("push"), &first, None)).id, first.as_str(), "once");
    // What cannot be undone needs a credential to be set up, whatever rules say.
    let bound = Bound { effect: "destructive".to_owned(), ..call("push") };
    let first = id(&waits(settle(&mut store, &bound, None, NOW)));
    assert!(waits(consent(&mut store, &bound, &first, None)).void.is_some());
    let credential = Credential::set(&places, b"correct horse").unwrap();
    assert!(matches!(consent(&mut store, &bound, &first, Some(&credential)), Ok(Settled::Approved(_))));
    // Written into the file by hand it is no approval.
    let first = id(&waits(settle(&mut store, &call("fetch"), Some(&credential), NOW)));
    let by_hand =
        "UPDATE requests SET state = 'approved', decided = 1, decided_by = 'a/main', method = 'elicitation' WHERE state = 'pending'";
    store.connection.execute(by_hand, []).unwrap();
    for credential in [Some(&credential), None] {
        assert!(!matches!(settle(&mut store, &call("fetch"), credential, NOW), Ok(Settled::Approved(_))));
    }
    assert_eq!(store.look(&first, NOW).unwrap().state, State::Expired);
}

#[test]
fn looking_changes_nothing_and_sees_the_time_pass() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let first = id(&waits(settle(&mut store, &call("push"), None, NOW)));
    assert_eq!(store.look(&first, NOW + PENDING_FOR).unwrap().state, State::Expired);
    assert_eq!(store.look(&first, NOW).unwrap().state, State::Pending);
    assert!(matches!(store.look(&RequestId::parse("000000000000").unwrap(), NOW), Err(ApprovalError::NoRequest(_))));
}

/// Somebody reads for a minute, and another puts another call under the id that they say yes to.
#[test]
fn what_is_approved_is_what_was_seen() {
    let root = tempfile::tempdir().unwrap();
    let places = places(root.path());
    let mut store = Store::open(&places.state).unwrap();
    let credential = Credential::set(&places, b"correct horse").unwrap();
    let decider =
        Decider { by: "me".to_owned(), approver: Some(credential.open(b"correct horse", &mut store, Way::Terminal, NOW).unwrap()) };
    let (good, bad) = (
        waits(settle(&mut store, &call("pull"), Some(&credential), NOW)),
        waits(settle(&mut store, &call("push"), Some(&credential), NOW)),
    );
    let seen = store.request(&id(&good), NOW).unwrap();
    let other = store.request(&id(&bad), NOW).unwrap();
    store.connection.execute("DELETE FROM requests WHERE id = ?1", [&good.id]).unwrap();
    store.connection.execute("UPDATE requests SET id = ?1 WHERE id = ?2", [&good.id, &bad.id]).unwrap();
    assert!(matches!(store.approve(&seen, Scope::Once, &decider, NOW), Err(ApprovalError::Tampered(_))));
    assert!(matches!(store.approve(&other, Scope::Once, &decider, NOW), Err(ApprovalError::NoRequest(_))));
    assert_eq!(store.pending(NOW).unwrap().len(), 1);
    assert_eq!(store.pending(NOW + PENDING_FOR).unwrap(), []);
}

/// Somebody who listened all the time.
const LISTENER: Listener<'static> = Listener { name: "https://hooks.example/", since: 0 };

/// What there is to tell, by request; all of it is told.
fn tell(store: &mut Store, telling: &Telling, now: i64) -> Vec<(String, Happened)> {
    let news = store.news(telling, now).unwrap();
    for one in &news {
        store.told(telling, one).unwrap();
    }
    news.into_iter().map(|one| (one.request.id, one.happened)).collect()
}

#[test]
fn each_turn_of_a_request_is_news_once() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let telling = store.begin_telling(&LISTENER).unwrap().expect("nobody else tells");
    assert_eq!(tell(&mut store, &telling, NOW), []);
    let push = waits(settle(&mut store, &call("push"), None, NOW));
    let pull = waits(settle(&mut store, &call("pull"), None, NOW));
    let fetch = waits(settle(&mut store, &call("fetch"), None, NOW));
    let all = [&push, &pull, &fetch].map(|waiting| (waiting.id.clone(), Happened::Requested));
    assert_eq!(store.news(&telling, NOW).unwrap().len(), 3, "what was not told stays news");
    assert_eq!(tell(&mut store, &telling, NOW), all);
    waits(settle(&mut store, &call("push"), None, NOW + 1));
    assert_eq!(tell(&mut store, &telling, NOW + 1), [], "asked again, it is no news");
    approve(&mut store, &push, Scope::Once, &me(), NOW + 2).unwrap();
    store.deny(&id(&pull), "me", Method::SameUid, NOW + 2).unwrap();
    let decided = [&push, &pull].map(|waiting| (waiting.id.clone(), Happened::Decided));
    assert_eq!(tell(&mut store, &telling, NOW + 3), decided);
    assert!(matches!(settle(&mut store, &call("push"), None, NOW + 4), Ok(Settled::Approved(_))));
    assert_eq!(tell(&mut store, &telling, NOW + 4), [], "that it ran is in its receipt");
    assert_eq!(tell(&mut store, &telling, NOW + 4 + DENIED_FOR), [], "a no that lapses");
    assert_eq!(tell(&mut store, &telling, NOW + PENDING_FOR), [(fetch.id, Happened::Expired)]);
}

#[test]
fn what_nobody_was_told_in_time_is_told_as_it_stands() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let [old, quick, late] = ["old", "quick", "late"].map(|word| waits(settle(&mut store, &call(word), None, NOW)));
    approve(&mut store, &old, Scope::Once, &me(), NOW).unwrap();
    approve(&mut store, &quick, Scope::Once, &me(), NOW + 1000).unwrap();
    assert!(matches!(settle(&mut store, &call("quick"), None, NOW + 1000), Ok(Settled::Approved(_))));
    let telling = store.begin_telling(&LISTENER).unwrap().expect("nobody else tells");
    // What was over long before anybody listened is left out.
    let news = tell(&mut store, &telling, NOW + 1001);
    assert_eq!(news, [(quick.id, Happened::Decided), (late.id, Happened::Requested)]);
    assert_eq!(tell(&mut store, &telling, NOW + APPROVED_FOR), [(old.id, Happened::Expired)], "approved, and never used");
}

#[test]
fn who_begins_to_listen_hears_what_waits_and_nothing_that_was_over() {
    let root = tempfile::tempdir().unwrap();
    let mut store = Store::open(root.path()).unwrap();
    let [over, early, open, lapsed] = ["over", "early", "open", "lapsed"].map(|word| waits(settle(&mut store, &call(word), None, NOW)));
    store.deny(&id(&over), "me", Method::SameUid, NOW + 10).unwrap();
    approve(&mut store, &lapsed, Scope::Once, &me(), NOW + 10).unwrap();
    // Decided before anybody could look, but after they began to listen.
    store.deny(&id(&early), "me", Method::SameUid, NOW + 20).unwrap();
    let first = Listener { name: "https://a.example/", since: NOW + 20 };
    let telling = store.begin_telling(&first).unwrap().expect("nobody else tells");
    let news = tell(&mut store, &telling, NOW + 21);
    assert_eq!(news, [(early.id.clone(), Happened::Decided), (open.id.clone(), Happened::Requested)]);
    drop(telling);
    // The same one, at the next start of a server, hears what happened in between.
    let quick = waits(settle(&mut store, &call("quick"), None, NOW + 30));
    store.deny(&id(&quick), "me", Method::SameUid, NOW + 31).unwrap();
    let telling = store.begin_telling(&Listener { since: NOW + 40, ..first }).unwrap().expect("nobody else tells");
    assert_eq!(tell(&mut store, &telling, NOW + 40), [(quick.id, Happened::Decided)]);
    drop(telling);
    // Another one hears what waits, whoever was told of it, and what comes of it.
    let telling = store.begin_telling(&Listener { name: "https://b.example/", since: NOW + 50 }).unwrap().expect("nobody else tells");
    assert_eq!(tell(&mut store, &telling, NOW + 50), [(open.id.clone(), Happened::Requested)]);
    store.deny(&id(&open), "me", Method::SameUid, NOW + 51).unwrap();
    assert_eq!(tell(&mut store, &telling, NOW + 51), [(open.id, Happened::Decided)]);
    assert_eq!(tell(&mut store, &telling, NOW + 10 + APPROVED_FOR), [(lapsed.id, Happened::Expired)], "approved, and never used");
    let kept: String = store.connection.query_row("SELECT listener FROM store", [], |row| row.get(0)).unwrap();
    assert!(kept.len() == 64 && !kept.contains("b.example"), "{kept}");
}

#[test]
fn one_process_tells_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let telling = Store::open(root.path()).unwrap().begin_telling(&LISTENER).unwrap();
    let mut other = Store::open(root.path()).unwrap();
    assert!(telling.is_some() && other.begin_telling(&LISTENER).unwrap().is_none());
    drop(telling);
    assert!(other.begin_telling(&LISTENER).unwrap().is_some());
}

/// Only where these tests run as root: nobody else can name another user.
#[test]
fn another_user_approves_by_a_signature_and_nobody_else_does() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (asker, other, stranger) = (places(&root.path().join("a")), places(&root.path().join("b")), places(&root.path().join("c")));
    for places in [&asker, &other, &stranger] {
        std::fs::create_dir_all(&places.state).unwrap();
    }
    let (approver, _) = Approver::of_user(&other).unwrap();
    let (foreign, _) = Approver::of_user(&stranger).unwrap();
    std::fs::create_dir(&asker.machine).unwrap();
    std::fs::write(asker.machine.join("approver.json"), approver.document(7, Path::new("/run/x")).unwrap()).unwrap();
    let credential = Credential::load(&asker).unwrap().unwrap();
    let mut store = Store::open(&asker.state).unwrap();
    let refused = credential.open(b"correct horse", &mut store, Way::Terminal, NOW);
    assert!(matches!(refused, Err(CredentialError::OtherUid(7))), "{refused:?}");
    let destructive = Bound { effect: "destructive".to_owned(), ..call("push") };
    let waiting = waits(settle(&mut store, &destructive, Some(&credential), NOW));
    let seen = Distant::from(&store.request(&id(&waiting), NOW).unwrap());
    // Another key, another text, another request, another time.
    let bad =
        |signed: Signed, store: &mut Store, now| matches!(store.approve_signed(&signed, &credential, now), Err(ApprovalError::Foreign(_)));
    assert!(bad(seen.sign("b", &foreign, NOW).unwrap(), &mut store, NOW));
    assert!(matches!(Distant { shown: "x".to_owned(), ..seen.clone() }.sign("b", &approver, NOW), Err(ApprovalError::Tampered(_))));
    let signed = seen.sign("b", &approver, NOW).unwrap();
    assert!(bad(Signed { by: "c".to_owned(), ..signed.clone() }, &mut store, NOW));
    assert!(bad(Signed { expires: NOW + 7 * 86_400, ..signed.clone() }, &mut store, NOW));
    assert!(bad(seen.sign("b", &approver, NOW - 1000).unwrap(), &mut store, NOW), "kept back");
    let other_call = waits(settle(&mut store, &call("pull"), Some(&credential), NOW));
    assert!(bad(Signed { id: other_call.id, ..signed.clone() }, &mut store, NOW));
    // The same user's own word does not count, even where it is written into the file.
    let fetch = waits(settle(&mut store, &call("fetch"), Some(&credential), NOW));
    approve(&mut store, &fetch, Scope::Once, &me(), NOW).unwrap();
    let void = waits(settle(&mut store, &call("fetch"), Some(&credential), NOW));
    assert_eq!(void.void.as_deref(), Some("it was given without the approver credential"));
    let approved = store.approve_signed(&signed, &credential, NOW).unwrap();
    assert_eq!((approved.state, approved.method.as_deref(), approved.by.as_deref()), (State::Approved, Some("other-uid"), Some("b")));
    let Ok(Settled::Approved(warrant)) = settle(&mut store, &destructive, Some(&credential), NOW + 1) else { panic!() };
    assert_eq!((warrant.by.as_str(), warrant.method.as_str()), ("b", "other-uid"));
    assert!(matches!(store.approve_signed(&signed, &credential, NOW + 2), Err(ApprovalError::Decided { state: State::Used, .. })));
}
