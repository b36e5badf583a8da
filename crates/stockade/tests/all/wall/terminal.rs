//! A program whose caller sits at a terminal has one too.

use std::time::Duration;

use super::ground::{finish, finish_within};
use super::{Ground, as_both};

/// Runs the program on a terminal of its own; `act` is Python that sees the controlling side as `fd`, and helpers.
const DRIVER: &str = r"
import fcntl, os, pty, select, signal, struct, sys, termios, time
def size(rows, columns): fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
seen = b''
def until(word, patience=20):
    global seen
    end = time.monotonic() + patience
    while word not in seen:
        if time.monotonic() > end: raise SystemExit(f'never saw {word}: {seen}')
        if select.select([fd], [], [], 0.1)[0]:
            try: seen += os.read(fd, 4096)
            except OSError: break
# The program starts only when the terminal's settings are written down.
wait, go = os.pipe()
pid, fd = pty.fork()
if pid == 0:
    os.read(wait, 1)
    # The size is set before the program starts, as a terminal has it.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 33, 77, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
before = termios.tcgetattr(fd)
os.write(go, b'g')
";

const END: &str = r"
end = time.monotonic() + 20
while True:
    if select.select([fd], [], [], 0.05)[0]:
        try: data = os.read(fd, 4096)
        except OSError: data = b''
        seen += data
    done, status = os.waitpid(pid, os.WNOHANG)
    if done: break
    if time.monotonic() > end: raise SystemExit(f'no end: {seen}')
# What it wrote last may have come between the two looks.
while select.select([fd], [], [], 0)[0]:
    try: data = os.read(fd, 4096)
    except OSError: break
    if not data: break
    seen += data
after = None
try: after = termios.tcgetattr(fd)
except termios.error: pass
print(seen.decode().replace('\r\n', '\n'), end='')
print('code', os.waitstatus_to_exitcode(status), 'restored', after is None or after == before)
";

/// `act` drives the terminal while `stockade run -- bash -c SCRIPT` runs on it.
fn on_terminal(ground: &Ground, script: &str, act: &str) -> String {
    // What is said once is said before, so that it is not in the way.
    ground.run(&[], &["true"]);
    stockade_on_terminal(ground, &["run", "--", "bash", "-c", script], act)
}

/// The same for `stockade` with any words.
pub(crate) fn stockade_on_terminal(ground: &Ground, words: &[&str], act: &str) -> String {
    stockade_on_terminal_with(ground, &[], words, act)
}

/// The same with more in the caller's environment.
pub(crate) fn stockade_on_terminal_with(ground: &Ground, variables: &[(&str, &str)], words: &[&str], act: &str) -> String {
    let mut command = ground.outside("/usr/bin/python3");
    command.arg("-c").arg(format!("{DRIVER}{act}{END}")).arg(&ground.binary).args(words);
    // A real agent may take longer to begin than anything of ours.
    let outcome = finish_within(command.env("TERM", "xterm").envs(variables.iter().copied()), Duration::from_mins(3));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout
}

#[test]
fn the_program_sees_a_terminal_of_the_right_size() {
    as_both(|ground| {
        let said =
            on_terminal(ground, "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal; stty size; echo via >/dev/tty; echo $TERM; exit 4", "");
        assert_eq!(said, "terminal\n33 77\nvia\nxterm\ncode 4 restored True\n");
    });
}

#[test]
fn a_resize_reaches_the_program() {
    as_both(|ground| {
        let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
        let said = on_terminal(ground, script, "until(b'ready')\nsize(44, 111)\n");
        assert_eq!(said, "ready\n44 111\ncode 0 restored True\n");
    });
}

#[test]
fn an_interrupt_reaches_the_program() {
    as_both(|ground| {
        let script = "stty -echo; trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done";
        assert_eq!(on_terminal(ground, script, "until(b'ready')\nos.write(fd, b'\\x03')\n"), "ready\ninterrupted\ncode 3 restored True\n");
        let said = on_terminal(ground, "stty -echo; echo ready; exec sleep 60", "until(b'ready')\nos.write(fd, b'\\x03')\n");
        assert_eq!(said, "ready\ncode 130 restored True\n");
    });
}

#[test]
fn typed_lines_reach_the_program() {
    as_both(|ground| {
        let script = "stty -echo; echo ready; read -r line; echo \"got $line\"; cat; echo end";
        let said = on_terminal(ground, script, "until(b'ready')\nos.write(fd, b'hello\\n')\nuntil(b'got hello')\nos.write(fd, b'\\x04')\n");
        assert_eq!(said, "ready\ngot hello\nend\ncode 0 restored True\n");
    });
}

#[test]
fn nothing_can_be_typed_into_the_callers_terminal() {
    as_both(|ground| {
        let program = "import fcntl, termios, os\n\
                       for call in [termios.TIOCSTI, 0x541c]:\n\
                       \x20 try: fcntl.ioctl(0, call, b'x'); print('typed')\n\
                       \x20 except OSError: print('refused')\n\
                       print(os.ttyname(0).startswith('/dev/pts/'))";
        let said = on_terminal(ground, &format!("/usr/bin/python3 -c \"{program}\""), "");
        assert_eq!(said, "refused\nrefused\nTrue\ncode 0 restored True\n");
    });
}

/// The caller's own terminal is the program's stdin here, not one of the sandbox.
#[test]
fn nothing_can_be_typed_where_only_stdin_is_a_terminal() {
    as_both(|ground| {
        let program = "import ctypes, os, termios\n\
                       libc = ctypes.CDLL(None, use_errno=True)\n\
                       for call in [termios.TIOCSTI, termios.TIOCSTI + (1 << 32), termios.TIOCSTI + (0xffffffff << 32), 0x541c, termios.TIOCSCTTY]:\n\
                       \x20 print('typed' if libc.ioctl(0, ctypes.c_ulong(call), b'x') == 0 else 'refused')\n\
                       try: os.open('/dev/tty', os.O_RDWR); print('controls')\n\
                       except OSError: print('apart')";
        let mut command = ground.outside("/usr/bin/python3");
        let act = "import os, pty, sys\n\
                   read, write = os.pipe()\n\
                   pid, fd = pty.fork()\n\
                   if pid == 0: os.dup2(write, 1); os.dup2(write, 2); os.execv(sys.argv[1], sys.argv[1:])\n\
                   os.close(write)\n\
                   print(os.fdopen(read).read(), end='')";
        ground.run(&[], &["true"]);
        command.args(["-c", act]).arg(&ground.binary).args(["run", "--", "/usr/bin/python3", "-c", program]);
        let outcome = finish(&mut command);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(0), "refused\nrefused\nrefused\nrefused\nrefused\napart\n"),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_callers_null_device_stays_one_where_output_is_captured() {
    as_both(|ground| {
        let (code, value) = ground.json(&[], &["bash", "-c", "[ -c /dev/stdin ] && ! [ -p /dev/stdin ] && read -r x"]);
        assert_eq!((code, &value["exit_code"]), (1, &serde_json::json!(1)), "{value}");
        let (code, _) = ground.json(&[], &["bash", "-c", "[ -c /dev/stdin ]"]);
        assert_eq!(code, 0);
    });
}

#[test]
fn a_kill_of_the_caller_ends_the_program() {
    as_both(|ground| {
        let seconds = super::ground::unique_seconds();
        let said = on_terminal(ground, &format!("echo ready; exec sleep {seconds}"), "until(b'ready')\nos.kill(pid, signal.SIGHUP)\n");
        assert!(said.contains("code 129"), "{said}");
        super::ground::eventually("everything is gone", || super::ground::processes(&seconds).is_empty());
    });
}
