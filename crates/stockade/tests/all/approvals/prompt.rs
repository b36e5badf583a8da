//! `stockade serve --foreground`: what comes in is asked about at its terminal.

use serde_json::json;

use super::{PASSPHRASE, ask_for, json, receipts, set_credential, tell};
use crate::wall::ground::finish;
use crate::wall::terminal::stockade_on_terminal;
use crate::wall::{Ground, Who, as_both};

/// Calls while the server runs, and the end of it.
const CALLS: &str = r"
import subprocess
def call(*words): return subprocess.run([sys.argv[1], 'run', '--', *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
def answer(key):
    global seen
    until(b'[y/N]')
    asked, seen = seen, b''
    os.write(fd, key)
    return asked.decode()
def expect(what, message):
    if not what: raise SystemExit(f'{message}: {seen}')
until(b'serving runs')
";
const OVER: &str = "os.kill(pid, signal.SIGTERM)\n";

#[test]
fn a_person_at_the_servers_terminal_is_asked() {
    as_both(|ground| {
        ask_for(ground, "cat");
        ground.file("x", "one\n");
        ground.file("y", "two\n");
        let act = r"
# Pressed before anything was asked: no answer to anything.
os.write(fd, b'y\r')
expect(call('cat', 'x').returncode == 126, 'it ran unasked')
shown = answer(b'y\r')
expect('| cat' in shown and 'look first' in shown, shown)
until(b'approved: the next such call runs')
expect(call('cat', 'x').stdout == 'one\n', 'it does not run')
seen = b''
expect(call('cat', 'y').returncode == 126, 'it ran unasked')
answer(b'n\r')
until(b'denied: such calls do not run')
expect('said no to the request' in call('cat', 'y').stderr, 'no is not said')
";
        let said = stockade_on_terminal(ground, &["serve", "--foreground"], &format!("{CALLS}{act}{OVER}"));
        assert!(said.ends_with("code 0 restored True\n"), "{said}");
        let all = receipts(ground);
        let verbs: Vec<_> = all.iter().filter(|one| one["kind"] == "approval").map(|one| &one["capability"]).collect();
        assert_eq!(verbs, [&json!("stockade.approvals.approve"), &json!("stockade.approvals.deny")], "{all:#?}");
        assert_eq!(tell(ground, &["receipts", "verify"]).code, Some(0));
    });
}

#[test]
fn what_is_asked_again_is_counted_and_what_is_decided_elsewhere_is_let_go() {
    let ground = Ground::new(Who::Ordinary);
    ask_for(&ground, "cat");
    ground.file("x", "one\n");
    ground.file("z\u{202e}\u{200b}", "");
    let act = r"
call('cat', 'x')
answer(b'\r')
until(b'left waiting: stockade approvals approve ')
id = seen.split(b'approvals approve ')[1][:12].decode()
seen = b''
for _ in range(5): call('cat', 'x')
until(b' times by now: cat x')
expect(b'[y/N]' not in seen, 'it is asked again')
call('cat', 'z\u202e\u200b')
until(b'[y/N]')
expect('\u202e' not in seen.decode() and r'z\u{202e}\u{200b}' in seen.decode(), 'not escaped')
waits = subprocess.run([sys.argv[1], 'approvals', 'list', '--json'], capture_output=True, text=True)
import json
other = [one['id'] for one in json.loads(waits.stdout)['approvals'] if one['id'] != id][0]
subprocess.run([sys.argv[1], 'approvals', 'deny', other], capture_output=True, stdin=subprocess.DEVNULL)
until(b'is denied meanwhile')
";
    let said = stockade_on_terminal(&ground, &["serve", "--foreground"], &format!("{CALLS}{act}{OVER}"));
    assert!(said.ends_with("code 0 restored True\n"), "{said}");
    let listed = json(&ground, &["approvals", "list"]);
    assert_eq!((listed["approvals"].as_array().map(Vec::len), &listed["approvals"][0]["times"]), (Some(1), &json!(6)), "{listed}");
}

#[test]
fn a_yes_there_is_the_passphrase_where_one_is_set_up() {
    let ground = Ground::new(Who::Ordinary);
    ask_for(&ground, "cat");
    ground.file("x", "one\n");
    ground.file("y", "two\n");
    set_credential(&ground);
    let act = format!(
        r"
def passphrase(words):
    until(b'passphrase'); time.sleep(0.3); os.write(fd, words)
call('cat', 'x')
answer(b'y\r')
passphrase(b'wrong horse battery\r')
until(b'does not fit')
expect(call('cat', 'x').returncode == 126, 'a wrong passphrase approved it')
# It is shown again, and is not let go.
expect('| cat' in answer(b'y\r'), 'another is shown')
passphrase(b'{PASSPHRASE}\r')
until(b'approved: the next such call runs')
expect(call('cat', 'x').stdout == 'one\n', 'it does not run')
seen = b''
call('cat', 'y')
answer(b'y\r')
passphrase(b'{PASSPHRASE}\r')
until(b'approved: the next such call runs')
expect(call('cat', 'y').stdout == 'two\n', 'it does not run')
# Ended while it waits for a passphrase: the terminal is as it was.
seen = b''
ran = call('cat', 'y')
answer(b'y\r')
until(b'passphrase'); time.sleep(0.3)
"
    );
    let said = stockade_on_terminal(&ground, &["serve", "--foreground"], &format!("{CALLS}{act}{OVER}"));
    assert!(said.ends_with("code 0 restored True\n") && !said.contains(PASSPHRASE), "{said}");
    assert_eq!(tell(&ground, &["receipts", "verify"]).code, Some(0));
}

#[test]
fn after_too_many_wrong_passphrases_it_asks_again_when_one_may_be_tried() {
    let ground = Ground::new(Who::Ordinary);
    ask_for(&ground, "cat");
    ground.file("x", "one\n");
    set_credential(&ground);
    let act = format!(
        r"
def guess(words):
    global seen
    answer(b'y\r')
    until(b'passphrase'); time.sleep(0.3); seen = b''; os.write(fd, words)
call('cat', 'x')
for _ in range(3):
    guess(b'wrong horse battery\r')
    until(b'does not fit')
guess(b'{PASSPHRASE}\r')
until(b'too often')
expect(call('cat', 'x').returncode == 126, 'the right one counted too early')
# It is shown again by itself, and the right one counts.
guess(b'{PASSPHRASE}\r')
until(b'approved: the next such call runs')
expect(call('cat', 'x').stdout == 'one\n', 'it does not run')
"
    );
    let said = stockade_on_terminal(&ground, &["serve", "--foreground"], &format!("{CALLS}{act}{OVER}"));
    assert!(said.ends_with("code 0 restored True\n") && !said.contains(PASSPHRASE), "{said}");
}

#[test]
fn without_a_terminal_there_is_no_foreground() {
    let ground = Ground::new(Who::Ordinary);
    // A session of its own has none.
    let mut command = ground.outside("setsid");
    let refused = finish(command.arg("--wait").arg(&ground.binary).args(["serve", "--foreground"]));
    assert!(refused.code == Some(125) && refused.stderr.contains("there is no terminal to ask at"), "{refused:?}");
}
