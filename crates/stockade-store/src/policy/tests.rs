//! Policy files on a real file system.

use std::os::unix::fs::symlink;

use stockade_policy::Verdict;
use stockade_policy::shell::{ByName, Programs, Standing, classify_argv};

use super::*;

const PERMIT: &str = "permit (principal, action == Stockade::Action::\"exec\", resource);";
const FORBID: &str = "forbid (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"rm\");";

struct Lab {
    _root: tempfile::TempDir,
    places: Places,
    workspace: PathBuf,
}

fn lab() -> Lab {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let places = Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("etc") };
    let workspace = at("ws");
    std::fs::create_dir_all(workspace.join(".stockade/policy")).unwrap();
    std::fs::create_dir_all(at("config/policy")).unwrap();
    Lab { places, workspace, _root: root }
}

impl Lab {
    fn load(&self) -> Result<PolicyLayers, PolicyError> {
        PolicyLayers::load(&self.places, Some(&self.workspace))
    }

    fn project(&self, name: &str, text: &str) {
        std::fs::write(self.workspace.join(".stockade/policy").join(name), text).unwrap();
    }

    fn user(&self, name: &str, text: &str) {
        std::fs::write(self.places.config.join("policy").join(name), text).unwrap();
    }
}

#[test]
fn no_file_is_no_policy() {
    let lab = lab();
    lab.user("notes.txt", "hello");
    lab.user(".x.cedar.swp", "hello");
    let layers = lab.load().unwrap();
    assert_eq!((layers.is_empty(), layers.floor, layers.project), (true, Floor::NoPolicy, ProjectTrust::Nothing));
}

#[test]
fn a_projects_rules_are_no_policy_of_a_person() {
    let lab = lab();
    lab.project("a.cedar", FORBID);
    let layers = lab.load().unwrap();
    assert_eq!((layers.files.len(), layers.floor, layers.project), (1, Floor::NoPolicy, ProjectTrust::Unknown));
    lab.user("u.cedar", PERMIT);
    assert_eq!(lab.load().unwrap().floor, Floor::Deny);
}

#[test]
fn trust_is_bound_to_the_files() {
    let lab = lab();
    assert_eq!(trust_project(&lab.places, &lab.workspace).unwrap(), None);
    lab.project("a.cedar", PERMIT);
    assert_eq!(lab.load().unwrap().project, ProjectTrust::Unknown);
    trust_project(&lab.places, &lab.workspace).unwrap().unwrap();
    assert_eq!(lab.load().unwrap().project, ProjectTrust::Trusted);
    lab.project("b.cedar", FORBID);
    assert_eq!(lab.load().unwrap().project, ProjectTrust::Changed, "another file");
    std::fs::remove_file(lab.workspace.join(".stockade/policy/b.cedar")).unwrap();
    assert_eq!(lab.load().unwrap().project, ProjectTrust::Trusted);
    lab.project("a.cedar", &format!("{PERMIT} "));
    assert_eq!(lab.load().unwrap().project, ProjectTrust::Changed, "another byte");
    assert!(untrust_project(&lab.places, &lab.workspace).unwrap() && !untrust_project(&lab.places, &lab.workspace).unwrap());
    assert_eq!(lab.load().unwrap().project, ProjectTrust::Unknown);
    std::fs::write(lab.places.state.join("trusted-projects.json"), "{").unwrap();
    assert!(matches!(lab.load(), Err(PolicyError::TrustFile(..))));
}

#[test]
fn a_projects_links_and_odd_files_are_refused() {
    let lab = lab();
    std::fs::write(lab.places.config.join("secret.cedar"), PERMIT).unwrap();
    let file = lab.workspace.join(".stockade/policy/x.cedar");
    symlink(lab.places.config.join("secret.cedar"), &file).unwrap();
    assert!(matches!(lab.load(), Err(PolicyError::NotAFile(_))));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(matches!(lab.load(), Err(PolicyError::NotAFile(_))));
    std::fs::remove_dir(&file).unwrap();
    std::fs::write(&file, b"\xff").unwrap();
    assert!(matches!(lab.load(), Err(PolicyError::NotText(_))));
    std::fs::write(&file, vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(matches!(lab.load(), Err(PolicyError::TooLarge(_))));
    std::fs::remove_file(&file).unwrap();
    let directory = lab.workspace.join(".stockade/policy");
    std::fs::rename(&directory, lab.workspace.join("elsewhere")).unwrap();
    symlink("../elsewhere", &directory).unwrap();
    assert!(matches!(lab.load(), Err(PolicyError::NotAFile(_))));
}

#[test]
fn rules_that_everybody_can_write_are_nobodys() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = lab();
    lab.user("u.cedar", PERMIT);
    lab.project("a.cedar", FORBID);
    let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    // A project's rules only forbid, unless they are trusted as they are.
    set(&lab.workspace.join(".stockade/policy/a.cedar"), 0o666);
    let (directory, file) = (lab.places.config.join("policy"), lab.places.config.join("policy/u.cedar"));
    for (path, mode, is_refused) in [
        (&file, 0o664, false),
        (&file, 0o646, true),
        (&file, 0o600, false),
        (&directory, 0o777, true),
        (&directory, 0o1777, true),
        (&directory, 0o775, false),
    ] {
        set(path, mode);
        let loaded = lab.load();
        assert_eq!(matches!(&loaded, Err(PolicyError::OpenToAll(found)) if found == path), is_refused, "{mode:o}: {loaded:?}");
    }
}

#[test]
fn what_passed_is_not_checked_again_until_it_changes() {
    let lab = lab();
    lab.user("u.cedar", PERMIT);
    let layers = lab.load().unwrap();
    assert!(!layers.has_passed(&lab.places));
    layers.compile(&lab.places).unwrap();
    assert!(lab.load().unwrap().has_passed(&lab.places));
    lab.user("u.cedar", "permit (principal, action, resource) when { context.nonsense };");
    let changed = lab.load().unwrap();
    assert!(!changed.has_passed(&lab.places));
    assert!(matches!(changed.compile(&lab.places), Err(PolicyError::Faults(_))));
    assert!(matches!(lab.load().unwrap().compile(&lab.places), Err(PolicyError::Faults(_))), "a refusal is not remembered");
}

/// Asks, and says whether the rules had to be compiled for it.
fn ask(lab: &Lab, name: &str, program: &str) -> (Verdict, bool) {
    let layers = lab.load().unwrap();
    let (policies, compiled) = (layers.compile(&lab.places).unwrap(), std::cell::Cell::new(false));
    let script = classify_argv(&[Some(program)], &ByName { directory: "/w" });
    let judged = layers.judge(&lab.places, &Principal::human(name), &script, || {
        compiled.set(true);
        Ok::<_, PolicyError>(&policies)
    });
    let judgement = judged.unwrap();
    assert_eq!(judgement, policies.judge(&Principal::human(name), &script, layers.floor), "what is kept is what would be said");
    (judgement.decision.verdict, compiled.get())
}

#[test]
fn a_permission_is_kept_for_the_same_question_to_the_same_rules_and_a_refusal_never() {
    let lab = lab();
    lab.user("u.cedar", &format!("{PERMIT}\n{FORBID}"));
    assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Allow, true));
    assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Allow, false));
    for (name, program) in [("ada", "cat"), ("bob", "ls"), ("ada", "/tmp/ls")] {
        assert_eq!(ask(&lab, name, program), (Verdict::Allow, true), "{name} {program}");
    }
    for _ in 0..2 {
        assert_eq!(ask(&lab, "ada", "rm"), (Verdict::Deny, true));
    }
    // The same rules elsewhere, one rule more, and rules that a person has not agreed to are other rules.
    lab.project("p.cedar", "forbid (principal, action, resource == Stockade::Program::\"ls\");");
    assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Deny, true));
    lab.project("p.cedar", "");
    assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Allow, true));
    assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Allow, false));
    std::fs::create_dir_all(lab.places.machine.join("policy")).unwrap();
    std::fs::write(lab.places.machine.join("policy/m.cedar"), PERMIT).unwrap();
    for _ in 0..2 {
        assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Allow, true), "the machine's rules are always asked");
    }
}

#[test]
fn what_is_kept_is_bounded_and_damage_is_asked_again() {
    let lab = lab();
    lab.user("u.cedar", PERMIT);
    assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Allow, true));
    let directory = lab.places.state.join("policy-known");
    for entry in std::fs::read_dir(&directory).unwrap().flatten() {
        std::fs::write(entry.path(), "{\"decision\": {}").unwrap();
    }
    assert_eq!(ask(&lab, "ada", "ls"), (Verdict::Allow, true));
    for number in 0..600 {
        std::fs::write(directory.join(format!("old-{number}")), "").unwrap();
    }
    assert_eq!(ask(&lab, "ada", "cat"), (Verdict::Allow, true));
    assert_eq!(ask(&lab, "ada", "cat"), (Verdict::Allow, false));
    assert!(std::fs::read_dir(&directory).unwrap().count() < 5);
}

#[test]
fn rules_are_added_whole_or_not_at_all() {
    let lab = lab();
    assert_eq!(add_rules(&lab.places, &[FORBID]).unwrap().line, 3);
    let second = add_rules(&lab.places, &[PERMIT, PERMIT]).unwrap();
    assert_eq!((second.line, lab.load().unwrap().compile(&lab.places).unwrap().rules().len()), (5, 3));
    assert!(matches!(add_rules(&lab.places, &[PERMIT, "permit (principal"]), Err(PolicyError::Faults(_))));
    assert_eq!(lab.load().unwrap().compile(&lab.places).unwrap().rules().len(), 3);
    write_preset(&lab.places, "").unwrap();
    assert!(matches!(write_preset(&lab.places, PERMIT), Err(PolicyError::Exists(_))));
    let named = format!("@id(\"x\") {PERMIT}");
    write_imported(&lab.places, "one", &named).unwrap();
    assert!(matches!(write_imported(&lab.places, "two", &named), Err(PolicyError::Faults(_))), "no two rules of one name");
    assert_eq!(lab.load().unwrap().compile(&lab.places).unwrap().rules().len(), 4);
    let names = std::fs::read_dir(lab.places.config.join("policy")).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert!(names.iter().all(|name| Path::new(name).extension().is_some_and(|end| end == "cedar")), "drafts are gone: {names:?}");
}

#[test]
fn no_rule_is_lost_between_two_writers() {
    let lab = lab();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| add_rules(&lab.places, &[FORBID]).unwrap());
        }
    });
    assert_eq!(lab.load().unwrap().compile(&lab.places).unwrap().rules().len(), 4);
}

#[test]
fn proposals_wait_under_the_digest_of_what_they_are() {
    let lab = lab();
    let draft = |asked: &str, reason: Option<&str>| ProposalDraft {
        principal: "Agent::\"a\"".into(),
        asked: asked.into(),
        reason: reason.map(str::to_owned),
        rules: vec![PERMIT.into()],
    };
    assert_eq!(proposals(&lab.places).unwrap(), []);
    let one = propose(&lab.places, draft("ls", None)).unwrap();
    assert_eq!(propose(&lab.places, draft("ls", Some("again"))).unwrap(), one, "the same proposal is one");
    let other = propose(&lab.places, draft("cat", Some("to read"))).unwrap();
    assert_eq!((proposals(&lab.places).unwrap().len(), proposal(&lab.places, &other.id).unwrap()), (2, other.clone()));
    for id in ["", "../../../etc/passwd", "0123456789ag", "000000000000"] {
        assert!(matches!(proposal(&lab.places, id), Err(PolicyError::NoProposal(_))), "{id}");
        assert!(!withdraw(&lab.places, id).unwrap());
    }
    let path = lab.places.state.join("proposals").join(format!("{}.json", one.id));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"ls\"", "\"rm\"")).unwrap();
    assert!(matches!(proposal(&lab.places, &one.id), Err(PolicyError::TrustFile(..))), "what was shown is what is allowed");
    assert!(withdraw(&lab.places, &one.id).unwrap() && withdraw(&lab.places, &other.id).unwrap());
    assert!(matches!(propose(&lab.places, draft(&"x".repeat(MAX_PROPOSAL), None)), Err(PolicyError::LongProposal)));
    for n in 0..MAX_PROPOSALS {
        propose(&lab.places, draft(&n.to_string(), None)).unwrap();
    }
    assert!(matches!(propose(&lab.places, draft("one more", None)), Err(PolicyError::TooManyProposals)));
}

#[test]
fn a_program_in_the_workspace_has_no_name_but_its_path() {
    let lab = lab();
    let programs = OnPath {
        directories: vec![lab.workspace.join("bin"), "/usr/bin".into()],
        current: lab.workspace.clone(),
        writable: vec![lab.workspace.clone()],
    };
    assert_eq!((programs.named("ls").name.as_str(), programs.exists("ls"), programs.exists("no-such-program")), ("ls", true, false));
    std::fs::create_dir(lab.workspace.join("bin")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/env", lab.workspace.join("bin/ls")).unwrap();
    assert_eq!(programs.named("ls").name, lab.workspace.join("bin/ls").to_str().unwrap());
    assert!(programs.at("bin/ls", Standing::Start).name.ends_with("/env"));
    assert_eq!(programs.at("../ws/none", Standing::Start).name, lab.workspace.join("none").to_str().unwrap());
    assert_eq!(programs.at("bin/ls", Standing::Unknown).name, "bin/ls");
}
