//! The layers together, from files to typed values.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use stockade_core::limits::{Limit, Limits};
use stockade_core::spec::{BackendKind, MountMode};

use super::key::Kind;
use super::typed::{Docker, E2b, Kubernetes, Microvm, Shuru};
use super::*;
use stockade_core::host::HostPattern;

const GIB: u64 = 1 << 30;

/// A home, a project and a machine of their own.
struct World {
    _root: tempfile::TempDir,
    places: Places,
    project: PathBuf,
}

impl World {
    fn new(user: &str, project: &str, machine: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        let places = Places {
            home: path.join("home"),
            state: path.join("state"),
            config: path.join("config"),
            runtime: path.join("run"),
            machine: path.join("machine"),
        };
        let project_root = path.join("project");
        std::fs::create_dir(&project_root).unwrap();
        for (directory, text) in [(&places.config, user), (&project_root.join(".stockade"), project), (&places.machine, machine)] {
            if !text.is_empty() {
                std::fs::create_dir(directory).unwrap();
                std::fs::write(directory.join("settings.json"), text).unwrap();
            }
        }
        Self { places, project: project_root, _root: root }
    }

    fn load(&self) -> Result<Settings, SettingsError> {
        Settings::load(&self.places, Some(&self.project))
    }
}

fn load(user: &str, project: &str, machine: &str) -> Result<Settings, SettingsError> {
    World::new(user, project, machine).load()
}

/// `"sandbox.limits.pids": 5` as a file.
fn file(key: &str, value: &Json) -> String {
    json!({ key: value }).to_string()
}

#[test]
fn defaults_are_those_of_the_contract() {
    let settings = load("", "", "").unwrap();
    assert_eq!(settings, Settings::defaults());
    let values: serde_json::Map<String, Json> = settings.list().into_iter().map(|row| (row.key.to_owned(), row.value)).collect();
    let mut expected = json!({
        "sandbox.enabled": true, "sandbox.backend": "auto", "sandbox.persistent": false, "sandbox.image": "stockade-sandbox",
        "sandbox.workspaceMode": "overlay", "sandbox.allowedHosts": [], "sandbox.timeoutSeconds": null,
        "sandbox.limits.cpus": null, "sandbox.limits.memory": null, "sandbox.limits.pids": 4096, "sandbox.limits.disk": 10240,
        "sandbox.limits.outputBytes": 10_485_760, "sandbox.network.rules": [], "sandbox.network.sentBytes": null,
        "sandbox.shuru.checkpoint": "stockade-env", "sandbox.shuru.cpus": 2, "sandbox.shuru.memory": 2048,
        "sandbox.shuru.diskSize": 4096, "sandbox.shuru.allowNet": false, "sandbox.shuru.allowedHosts": [],
        "sandbox.microvm.checkpoint": "stockade-env", "sandbox.microvm.cpus": 2, "sandbox.microvm.memory": 2048,
        "sandbox.microvm.diskSize": 4096, "sandbox.microvm.accel": "auto",
        "sandbox.docker.host": null, "sandbox.docker.runtime": null, "sandbox.e2b.template": null, "sandbox.e2b.domain": null,
        "sandbox.kubernetes.context": null, "sandbox.kubernetes.namespace": null, "sandbox.kubernetes.runtimeClass": null,
    });
    // As many as the macro takes, and the rest.
    let rest = json!({
        "secrets": {}, "agent.prices": {}, "daemon.autostart": false, "approvals.notify.command": null,
        "approvals.webhook.url": null, "approvals.webhook.secret": null, "receipts.durability": "effect",
        "receipts.witness.directory": null, "receipts.witness.command": null, "receipts.witness.name": null, "receipts.witness.publicKey": null,
        "telemetry.otlp.url": null, "telemetry.otlp.secret": null,
    });
    expected.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    assert_eq!(Json::Object(values), expected);
    assert!(settings.list().iter().all(|row| row.source == "default" && row.file.is_none() && row.line.is_none()));
}

#[test]
fn default_limits() {
    let settings = Settings::defaults();
    let expected = Limits {
        cpu_millis: None,
        memory: Some(Limit::default_of(12 * GIB)),
        pids: Some(Limit::default_of(4096)),
        disk: Some(Limit::default_of(10 * GIB)),
        output: Some(Limit::default_of(10 << 20)),
        time: None,
        open_files: None,
    };
    assert_eq!(settings.limits(Caller::Run, 16 * GIB), expected);
    let agents = Limits { time: Some(Limit::default_of(Duration::from_mins(10))), ..expected };
    assert_eq!(settings.limits(Caller::Agent, 16 * GIB), agents);
}

#[test]
fn what_somebody_said_is_asked_for() {
    let user =
        r#"{"sandbox": {"timeoutSeconds": 1.5, "limits": {"cpus": 0.5, "memory": 512, "pids": 4096, "disk": 1, "outputBytes": 10}}}"#;
    let expected = Limits {
        cpu_millis: Some(Limit::asked(500)),
        memory: Some(Limit::asked(512 << 20)),
        pids: Some(Limit::asked(4096)),
        disk: Some(Limit::asked(1 << 20)),
        output: Some(Limit::asked(10)),
        time: Some(Limit::asked(Duration::from_millis(1500))),
        open_files: None,
    };
    for (name, settings) in [("user", load(user, "", "")), ("project", load("", user, "")), ("machine", load("", "", user))] {
        assert_eq!(settings.unwrap().limits(Caller::Run, 16 * GIB), expected, "{name}");
    }
    let flags = Flags {
        timeout: Some(Duration::from_millis(1500)),
        cpu_millis: Some(500),
        memory: Some(512 << 20),
        pids: Some(4096),
        disk: Some(1 << 20),
        output: Some(10),
        ..Flags::default()
    };
    assert_eq!(Settings::defaults().with_flags(&flags).limits(Caller::Run, 16 * GIB), expected, "flags");
}

#[test]
fn sizes_of_flags_keep_every_byte() {
    for bytes in [1, 1000, 123_456_789, (1 << 50) + 1] {
        let settings = Settings::defaults().with_flags(&Flags { memory: Some(bytes), disk: Some(bytes), ..Flags::default() });
        let limits = settings.limits(Caller::Run, GIB);
        assert_eq!((limits.memory, limits.disk), (Some(Limit::asked(bytes)), Some(Limit::asked(bytes))));
    }
}

#[test]
fn layers_override_in_order() {
    let pids = |value: u32| file("sandbox.limits.pids", &json!(value));
    let flag = Flags { pids: Some(50), ..Flags::default() };
    let none = Flags::default();
    for (user, project, flags, machine, value, source) in [
        ("", "", &none, "", 4096, "default"),
        (pids(9000).as_str(), "", &none, "", 9000, "user"),
        (pids(900).as_str(), pids(90).as_str(), &none, "", 90, "project"),
        ("", pids(4096).as_str(), &none, "", 4096, "project"),
        (pids(900).as_str(), pids(40).as_str(), &flag, "", 50, "flag"),
        (pids(900).as_str(), pids(40).as_str(), &flag, pids(9999).as_str(), 9999, "machine"),
        ("", pids(40).as_str(), &none, pids(100).as_str(), 100, "machine"),
    ] {
        let row = load(user, project, machine).unwrap().with_flags(flags).get("sandbox.limits.pids").unwrap();
        assert_eq!((row.value, row.source), (json!(value), source), "{user} {project} {flags:?} {machine}");
    }
}

#[test]
fn a_flag_that_the_machine_overrules_is_told() {
    let flags = Flags { pids: Some(5), backend: Some(Backend::Wall(BackendKind::Local)), ..Flags::default() };
    let settings = load("", "", r#"{"sandbox": {"backend": "jail", "limits": {"pids": 5}}}"#).unwrap().with_flags(&flags);
    let told: Vec<_> = settings.overruled().iter().map(|o| (o.flag, o.key, o.value.as_str(), o.source.word())).collect();
    assert_eq!(told, [("--backend", "sandbox.backend", "\"jail\"", "machine")]);
    assert_eq!(settings.backend().value, Backend::Wall(BackendKind::Jail));
}

#[test]
fn every_flag_reaches_its_setting() {
    let flags = Flags {
        backend: Some(Backend::Wall(BackendKind::Gvisor)),
        image: Some("img".into()),
        workspace_mode: Some(MountMode::Rw),
        allowed_hosts: vec![HostPattern::parse("a.com").unwrap()],
        timeout: Some(Duration::from_secs(30)),
        cpu_millis: Some(1500),
        memory: Some(GIB),
        pids: Some(9),
        disk: Some(GIB),
        output: Some(1),
    };
    let settings = Settings::defaults().with_flags(&flags);
    let given: Vec<_> = settings.list().into_iter().filter(|row| row.source == "flag").map(|row| (row.key, row.value)).collect();
    assert_eq!(
        given,
        [
            ("sandbox.backend", json!("gvisor")),
            ("sandbox.image", json!("img")),
            ("sandbox.workspaceMode", json!("rw")),
            ("sandbox.allowedHosts", json!(["a.com"])),
            ("sandbox.timeoutSeconds", json!(30)),
            ("sandbox.limits.cpus", json!(1.5)),
            ("sandbox.limits.memory", json!(1024)),
            ("sandbox.limits.pids", json!(9)),
            ("sandbox.limits.disk", json!(1024)),
            ("sandbox.limits.outputBytes", json!(1)),
        ]
    );
    assert_eq!(settings.backend().source.to_string(), "flag --backend");
}

#[test]
fn a_project_tightens() {
    for (key, user, project, effective) in [
        ("sandbox.enabled", json!(true), json!(false), json!(false)),
        ("sandbox.enabled", json!(false), json!(false), json!(false)),
        ("sandbox.workspaceMode", json!("rw"), json!("overlay"), json!("overlay")),
        ("sandbox.workspaceMode", json!("overlay"), json!("ro"), json!("ro")),
        ("sandbox.timeoutSeconds", json!(null), json!(5), json!(5)),
        ("sandbox.timeoutSeconds", json!(null), json!(null), json!(null)),
        ("sandbox.limits.cpus", json!(2), json!(0.5), json!(0.5)),
        ("sandbox.limits.memory", json!(100), json!(100), json!(100)),
        ("sandbox.microvm.diskSize", json!(100), json!(50), json!(50)),
        ("sandbox.shuru.allowNet", json!(true), json!(false), json!(false)),
        ("sandbox.allowedHosts", json!(["a.com", "*.b.com"]), json!(["x.b.com", "c.com"]), json!(["x.b.com"])),
        ("sandbox.allowedHosts", json!(["a.com"]), json!([]), json!([])),
        ("sandbox.allowedHosts", json!([]), json!(["a.com"]), json!([])),
        ("sandbox.shuru.allowedHosts", json!(["a.com"]), json!(["a.com:443", "a.com:22"]), json!(["a.com:443"])),
        ("sandbox.network.sentBytes", json!(null), json!(5), json!(5)),
        (
            "sandbox.network.rules",
            json!([{"host": "a.com", "tls": "pass"}]),
            json!([{"host": "b.com", "methods": ["GET"]}]),
            json!([{"host": "a.com", "tls": "pass"}, {"host": "b.com", "methods": ["GET"]}]),
        ),
    ] {
        let settings = load(&file(key, &user), &file(key, &project), "").unwrap();
        let row = settings.get(key).unwrap();
        assert_eq!((row.value, row.source), (effective, "project"), "{key} {user} {project}");
    }
}

#[test]
fn a_project_that_would_loosen_is_an_error_with_both_values() {
    for (key, user, project) in [
        ("sandbox.enabled", Some(json!(false)), json!(true)),
        ("sandbox.workspaceMode", None, json!("rw")),
        ("sandbox.workspaceMode", Some(json!("ro")), json!("overlay")),
        ("sandbox.timeoutSeconds", Some(json!(10)), json!(11)),
        ("sandbox.timeoutSeconds", Some(json!(10)), json!(null)),
        ("sandbox.limits.cpus", Some(json!(1)), json!(null)),
        ("sandbox.limits.memory", Some(json!(100)), json!(101)),
        ("sandbox.limits.pids", None, json!(4097)),
        ("sandbox.limits.disk", None, json!(10241)),
        ("sandbox.limits.outputBytes", None, json!(10_485_761)),
        ("sandbox.shuru.allowNet", None, json!(true)),
        ("sandbox.shuru.cpus", None, json!(3)),
        ("sandbox.network.sentBytes", Some(json!(5)), json!(6)),
        ("sandbox.network.rules", None, json!([{"host": "a.com", "tls": "pass"}])),
    ] {
        let world = World::new(&user.as_ref().map_or_else(String::new, |user| file(key, user)), &file(key, &project), "");
        let error = world.load().unwrap_err();
        assert!(matches!(error, SettingsError::Loosens { .. }), "{key} {error}");
        let (message, hint) = (error.to_string(), error.hint().unwrap_or_default());
        let path = world.project.join(".stockade/settings.json");
        let effective = user.unwrap_or_else(|| Settings::defaults().get(key).unwrap().value);
        for part in [path.to_str().unwrap(), key, &project.to_string(), &effective.to_string()] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(hint.contains(key), "{hint}");
    }
}

#[test]
fn every_key_has_a_rule_for_projects() {
    for key in table::KEYS {
        let result = load("", &file(key.name, &key.default.to_json()), "");
        match key.project {
            key::ProjectRule::Never => assert!(matches!(result, Err(SettingsError::NotForProjects { .. })), "{}", key.name),
            // The default itself is never looser than the default.
            _ => assert_eq!(result.unwrap().get(key.name).unwrap().source, "project", "{}", key.name),
        }
    }
}

#[test]
fn a_project_never_exceeds_defaults_that_depend_on_the_asker() {
    let project = r#"{"sandbox": {"timeoutSeconds": 1000, "limits": {"memory": 102400}}}"#;
    let settings = load("", project, "").unwrap();
    assert_eq!(settings.timeout(Caller::Run).value, Some(Duration::from_secs(1000)));
    assert_eq!(settings.timeout(Caller::Agent).value, Some(Duration::from_mins(10)));
    assert_eq!(settings.limits(Caller::Run, 16 * GIB).memory, Some(Limit::asked(12 * GIB)));
    // Who said `null` wants no limit, for agents too; then the project's value is the tighter one.
    let settings = load(r#"{"sandbox": {"timeoutSeconds": null}}"#, project, "").unwrap();
    assert_eq!(settings.timeout(Caller::Agent).value, Some(Duration::from_secs(1000)));
    let settings = load(r#"{"sandbox": {"timeoutSeconds": null}}"#, "", "").unwrap();
    assert_eq!(settings.timeout(Caller::Agent).value, None);
    // A person's own values are not bounded by defaults.
    let settings = load(project, "", "").unwrap();
    assert_eq!(settings.limits(Caller::Agent, 16 * GIB).memory, Some(Limit::asked(100 * GIB)));
    assert_eq!(settings.timeout(Caller::Agent).value, Some(Duration::from_secs(1000)));
}

#[test]
fn sources_say_file_and_line() {
    let world = World::new("{\n\n  \"sandbox\": {\n    \"image\": \"mine\"\n  }\n}", "", "");
    let settings = world.load().unwrap();
    let path = world.places.user_settings();
    assert_eq!(settings.image().source, Source::File { layer: Layer::User, path: path.clone(), line: 4 });
    assert_eq!(settings.image().source.to_string(), format!("user {}:4", path.display()));
    let row = serde_json::to_value(settings.get("sandbox.image").unwrap()).unwrap();
    assert_eq!(row, json!({"key": "sandbox.image", "value": "mine", "source": "user", "file": path, "line": 4}));
}

fn sourced<T>(value: T, source: &Source) -> Sourced<T> {
    Sourced { value, source: source.clone() }
}

#[test]
fn typed_values() {
    let user = json!({
        "sandbox": {
            "enabled": false, "backend": "docker", "persistent": true, "image": "i", "workspaceMode": "rw", "allowedHosts": ["A.com"],
            "shuru": {"checkpoint": "s", "cpus": 3, "memory": 4, "diskSize": 5, "allowNet": true, "allowedHosts": ["b.com"]},
            "microvm": {"checkpoint": "m", "cpus": 6, "memory": 7, "diskSize": 8, "accel": "tcg"},
            "network": {"rules": [{"host": "r.com"}]},
            "docker": {"host": "unix:///d", "runtime": "runsc"},
            "e2b": {"template": "t", "domain": "d"},
            "kubernetes": {"context": "c", "namespace": "n", "runtimeClass": "r"},
        },
        "secrets": {"T": {"source": "file", "path": "/t"}},
        "agent": {"prices": {"m": {"input": 1, "output": 2}}},
        "daemon": {"autostart": true},
        "approvals": {"notify": {"command": "/n --x"}, "webhook": {"url": "https://w/", "secret": "W"}},
        "telemetry": {"otlp": {"url": "https://o/v1/traces", "secret": "O"}},
        "receipts": {"durability": "process", "witness": {"directory": "/w", "command": "/c", "name": "n", "publicKey": "/k"}},
    });
    let settings = load(&user.to_string(), "", "").unwrap();
    assert!(
        settings
            .cells
            .iter()
            .filter(|cell| cell.source == Source::Default)
            .all(|cell| matches!(table::find(cell.name).unwrap().kind, Kind::Integer(..) | Kind::Number(..)))
    );
    let source = settings.enabled().source;
    let text = |value: &str| sourced(value.to_owned(), &source);
    let some = |value: &str| sourced(Some(value.to_owned()), &source);
    let host = |text: &str| sourced(vec![HostPattern::parse(text).unwrap()], &source);
    assert_eq!(settings.enabled(), sourced(false, &source));
    assert_eq!(settings.backend(), sourced(Backend::Wall(BackendKind::Docker), &source));
    assert_eq!(settings.persistent(), sourced(true, &source));
    assert_eq!(settings.image(), text("i"));
    assert_eq!(settings.workspace_mode(), sourced(MountMode::Rw, &source));
    assert_eq!(settings.allowed_hosts(), host("a.com"));
    let ruled: Vec<String> = settings.network_rules().value.iter().flatten().map(|rule| rule.host.to_string()).collect();
    assert_eq!(ruled, ["r.com"]);
    assert_eq!(settings.secrets().value.first().map(|secret| &secret.source), Some(&SecretSource::File { path: "/t".into() }));
    assert_eq!(settings.prices().value.first().map(|price| (price.model.as_str(), price.cache_read)), Some(("m", 1.0)));
    assert_eq!(settings.autostart(), sourced(true, &source));
    assert_eq!(settings.notify(), some("/n --x"));
    assert_eq!(settings.webhook(), Endpoint { url: some("https://w/"), secret: some("W") });
    assert_eq!(settings.otlp(), Endpoint { url: some("https://o/v1/traces"), secret: some("O") });
    assert_eq!(settings.durability(), sourced(Durability::Process, &source));
    let (directory, command) = (some("/w"), some("/c"));
    assert_eq!(settings.witness(), Witness { directory, command, name: some("n"), key: some("/k") });
    assert_eq!(
        settings.shuru(),
        Shuru {
            checkpoint: text("s"),
            cpus: sourced(3, &source),
            memory_mib: sourced(4, &source),
            disk_mib: sourced(5, &source),
            allow_net: sourced(true, &source),
            allowed_hosts: host("b.com"),
        }
    );
    assert_eq!(
        settings.microvm(),
        Microvm {
            checkpoint: text("m"),
            cpus: sourced(6, &source),
            memory_mib: sourced(7, &source),
            disk_mib: sourced(8, &source),
            accel: sourced(Accel::Tcg, &source),
        }
    );
    assert_eq!(settings.docker(), Docker { host: some("unix:///d"), runtime: some("runsc") });
    assert_eq!(settings.e2b(), E2b { template: some("t"), domain: some("d") });
    assert_eq!(settings.kubernetes(), Kubernetes { context: some("c"), namespace: some("n"), runtime_class: some("r") });
}

#[test]
fn every_backend_of_the_table_is_a_backend() {
    let Kind::Choice(words) = table::find("sandbox.backend").unwrap().kind else { panic!("a choice") };
    for word in words {
        assert_eq!(word.parse::<Backend>().unwrap().name(), *word);
    }
    assert_eq!(words.len(), BackendKind::ALL.len() + 1);
    assert!("Jail".parse::<Backend>().is_err());
}

#[test]
fn files_that_cannot_be_used_are_errors_and_never_defaults() {
    let world = World::new("", "", "");
    let user = world.places.user_settings();
    std::fs::create_dir(&world.places.config).unwrap();

    std::fs::create_dir(&user).unwrap();
    assert!(matches!(world.load(), Err(SettingsError::NotAFile(path)) if path == user));
    std::fs::remove_dir(&user).unwrap();

    rustix::fs::mkfifoat(rustix::fs::CWD, &user, rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(world.load(), Err(SettingsError::NotAFile(path)) if path == user), "a pipe must not block");
    std::fs::remove_file(&user).unwrap();

    std::fs::write(&user, format!("{{}}{}", " ".repeat((1 << 20) - 2))).unwrap();
    assert!(world.load().is_ok(), "1 MiB exactly");
    std::fs::write(&user, format!("{{}}{}", " ".repeat((1 << 20) - 1))).unwrap();
    assert!(matches!(world.load(), Err(SettingsError::TooLarge(path)) if path == user));

    std::fs::write(&user, "{}").unwrap();
    for (mode, is_refused) in [(0o644, false), (0o664, false), (0o646, true), (0o602, true), (0o600, false)] {
        std::fs::set_permissions(&user, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let loaded = world.load();
        assert_eq!(matches!(&loaded, Err(SettingsError::OpenToAll(path)) if *path == user), is_refused, "{mode:o}");
        assert_eq!(loaded.err().and_then(|error| error.hint()).is_some(), is_refused, "{mode:o}");
    }
    std::fs::write(&world.places.machine, "").unwrap();
    assert!(matches!(world.load(), Err(SettingsError::Read { path, .. }) if path == world.places.machine_settings()));
}

#[test]
fn links_are_followed_for_people_but_not_for_projects() {
    let world = World::new("", "", "");
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("settings.json");
    std::fs::write(&target, r#"{"sandbox": {"limits": {"pids": 7}}}"#).unwrap();
    std::fs::create_dir(&world.places.config).unwrap();
    symlink(&target, world.places.user_settings()).unwrap();
    assert_eq!(world.load().unwrap().get("sandbox.limits.pids").unwrap().value, json!(7));

    let directory = world.project.join(".stockade");
    symlink(elsewhere.path(), &directory).unwrap();
    assert!(matches!(world.load(), Err(SettingsError::Link(path)) if path == directory));
    std::fs::remove_file(&directory).unwrap();
    std::fs::create_dir(&directory).unwrap();
    symlink(&target, directory.join("settings.json")).unwrap();
    assert!(matches!(world.load(), Err(SettingsError::Link(path)) if path == directory.join("settings.json")));
}

#[test]
fn without_a_project_only_people_and_the_machine_speak() {
    let world = World::new("", "{ broken", "");
    assert!(world.load().is_err());
    assert_eq!(Settings::load(&world.places, None).unwrap(), Settings::defaults());
}

#[test]
fn get_names_the_nearest_key() {
    let error = Settings::defaults().get("sandbox.limit.pids").unwrap_err();
    assert_eq!(error.to_string(), "unknown setting `sandbox.limit.pids`; the nearest known one is `sandbox.limits.pids`");
    let error = Settings::defaults().get("sandbox.microvm").unwrap_err();
    assert_eq!(error.to_string(), "unknown setting `sandbox.microvm`; the nearest known one is `sandbox.microvm.checkpoint`");
}

#[test]
fn secrets_are_a_persons_own_and_each_stands_once() {
    let secrets =
        load(r#"{ "secrets": { "TOKEN": { "source": "command", "command": ["gh", "auth", "token"] } } }"#, "", "").unwrap().secrets();
    assert_eq!(secrets.value.iter().map(|s| (s.name.as_str(), s.source.word())).collect::<Vec<_>>(), [("TOKEN", "command")]);
    let twice = r#"{ "secrets": { "A": { "source": "store" }, "A": { "source": "env" } } }"#;
    let error = load(twice, "", "").unwrap_err().to_string();
    assert!(error.contains("secrets.A"), "{error}");
    let error = load("", r#"{ "secrets": {} }"#, "").unwrap_err();
    assert!(matches!(error, SettingsError::NotForProjects { .. }), "{error}");
}
