//! The interactive shell.

use super::as_both;
use crate::wall::ground::finish_with;
use crate::wall::terminal::stockade_on_terminal;

#[test]
fn a_shell_prompts_echoes_and_knows_its_size() {
    as_both(|yard| {
        yard.create(&["--name", "box", "--env", "PS1=inside> "]);
        let act = r"
until(b'> ')
os.write(fd, b'echo say$((40 + 2))\n'); until(b'say42')
assert b'echo say' in seen, seen
os.write(fd, b'stty size\n'); until(b'33 77')
size(40, 100); time.sleep(0.2)
os.write(fd, b'stty size\n'); until(b'40 100')
os.write(fd, b'sleep 60\n'); time.sleep(0.3); os.write(fd, b'\x03')
os.write(fd, b'echo code $?\n'); until(b'code 130')
os.write(fd, b'echo made >made; exit 9\n')
";
        let said = stockade_on_terminal(yard, &["sandbox", "shell", "box"], act);
        assert!(said.ends_with("code 9 restored True\n"), "{said}");
        assert_eq!(yard.inside("box", "cat made"), "made\n");
    });
}

#[test]
fn a_program_on_a_terminal_has_one() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let script = "[ -t 0 ] && [ -t 1 ] && echo terminal; stty size; exit 3";
        let said = stockade_on_terminal(yard, &["sandbox", "exec", "box", "--", "bash", "-c", script], "");
        assert_eq!(said, "terminal\n33 77\ncode 3 restored True\n");
    });
}

#[test]
fn a_shell_without_a_terminal_reads_commands() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let outcome = finish_with(&mut yard.stockade(["sandbox", "shell", "box"]), b"echo one\nexit 4\n");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(4), "one\n"), "{outcome:?}");
    });
}

#[test]
fn a_shell_whose_sandbox_is_destroyed_ends() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let act = "until(b'$ ') if False else time.sleep(0.5)\nimport subprocess\nsubprocess.run([sys.argv[1], 'sandbox', 'destroy', 'box'], check=True)\n";
        let said = stockade_on_terminal(yard, &["sandbox", "shell", "box"], act);
        assert!(said.contains("closed its stream") && said.ends_with("code 125 restored True\n"), "{said}");
    });
}
