//! `stockade-ssh`: what git takes for `ssh`. It asks the desk for one session, which is held outside, and passes bytes.
//!
//! ```text
//! git ── stdin ──▶ stockade-ssh ── POST /ssh, then frames ──▶ desk ══ SSH ══▶ host
//!    ◀─ stdout ──┘            ◀── output, exit status ───────┘
//! ```
//!
//! It knows no keys and speaks no SSH. Whatever git does not say is refused here already, in words; the desk decides on its own all the same.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::exchange::{Answer, UPGRADED, exchange};
use super::{DESK, Desk, variable};

/// What git sets where it speaks a newer protocol.
const PROTOCOL: &str = "GIT_PROTOCOL";
/// How long the session may take to stand: a look-up, a connection and a login.
const PATIENCE: Duration = Duration::from_secs(90);
/// The longest command; a repository's name has at most a quarter of it.
const MOST_COMMAND: usize = 4 << 10;
/// The longest of the other words.
const MOST_WORD: usize = 256;
/// What is passed at one time.
const PIECE: usize = 32 << 10;
/// The longest frame that is taken.
const MOST_FRAME: usize = 64 << 10;
/// Ssh's own code where it is ssh that failed.
const FAILED: i32 = 255;

/// Kinds of frames: what is said, and what is heard.
const INPUT: u8 = 0;
const INPUT_ENDS: u8 = 1;
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const EXIT: u8 = 3;
const BROKEN: u8 = 4;

/// What git wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) user: Option<&'a str>,
    pub(super) command: &'a [u8],
}

/// Does it; gives the exit code.
pub(super) fn run(arguments: &[&[u8]]) -> i32 {
    session(arguments).unwrap_or_else(|why| {
        let _ = io::stderr().write_all(format!("stockade: {why}\n").as_bytes());
        FAILED
    })
}

fn session(arguments: &[&[u8]]) -> Result<i32, String> {
    let wanted = Wanted::of(arguments)?;
    let text = variable(DESK).ok_or("this sandbox has no desk")?;
    let desk = Desk::parse(&text).ok_or("`STOCKADE_DESK` names no desk of this sandbox")?;
    let protocol = variable(PROTOCOL).filter(|text| !text.is_empty());
    let request = wanted.request(&desk, protocol.as_deref())?;
    let (answer, stream) = exchange(desk.port, &request, PATIENCE).map_err(|error| format!("the desk does not answer: {error}"))?;
    if answer.status != UPGRADED {
        return Err(told(&answer));
    }
    let lost = |error: io::Error| format!("the session broke off: {error}");
    let inside = stream.try_clone().map_err(lost)?;
    // It ends with the process: nobody waits for input that git will not give.
    std::thread::spawn(move || send_input(inside));
    receive(answer.body.as_slice().chain(stream)).map_err(lost)
}

impl<'a> Wanted<'a> {
    /// `[-o SendEnv=GIT_PROTOCOL] [-4|-6] [-p PORT] [USER@]HOST COMMAND`, and nothing else.
    pub(super) fn of(arguments: &[&'a [u8]]) -> Result<Self, &'static str> {
        let mut port = 22;
        let mut rest = arguments;
        let place = loop {
            rest = match rest {
                [b"-o", b"SendEnv=GIT_PROTOCOL", rest @ ..] | [b"-4" | b"-6", rest @ ..] => rest,
                [b"-o", ..] => return Err("options of ssh cannot be set in a sandbox: the session is held outside"),
                [b"-p", number, rest @ ..] => {
                    let number = std::str::from_utf8(number).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                    port = number.and_then(|text| text.parse().ok()).filter(|port| *port != 0).ok_or("a port is a number up to 65535")?;
                    rest
                }
                [option, ..] if option.starts_with(b"-") => return Err("only git's own use of ssh is possible in a sandbox"),
                [place, rest @ ..] => break (*place, rest),
                [] => return Err("usage: stockade-ssh [-p PORT] [USER@]HOST COMMAND, as git runs it"),
            }
        };
        let (place, command) = match place {
            (place, [command]) => (place, *command),
            (_, []) => return Err("there are no shells of other hosts in a sandbox: only git's own use of ssh is possible"),
            (_, _) => return Err("a command is one argument, as git has it"),
        };
        let place = std::str::from_utf8(place).ok().filter(|text| text.len() <= MOST_WORD).ok_or("this is no host")?;
        let (user, host) = place.rsplit_once('@').map_or((None, place), |(user, host)| (Some(user), host));
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain(host) || !user.is_none_or(plain) {
            return Err("this is no host");
        }
        if command.is_empty() || command.len() > MOST_COMMAND {
            return Err("the command is empty or too long");
        }
        Ok(Self { host, port, user, command })
    }

    fn request(&self, desk: &Desk<'_>, protocol: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let Self { host, port, user, command } = self;
        let Desk { port: door, token } = desk;
        let mut head = format!(
            "POST /ssh HTTP/1.1\r\nHost: 127.0.0.1:{door}\r\nAuthorization: Bearer {token}\r\nConnection: upgrade\r\nUpgrade: stockade-ssh\r\n\
             Stockade-Host: {host}\r\nStockade-Port: {port}\r\nStockade-Command: {}\r\n",
            hex(command)
        );
        if let Some(user) = user {
            head.extend(["Stockade-User: ", user, "\r\n"]);
        }
        if let Some(protocol) = protocol {
            let text = std::str::from_utf8(protocol)
                .ok()
                .filter(|text| text.len() <= MOST_WORD && text.bytes().all(|byte| byte.is_ascii_graphic()));
            head.extend(["Stockade-Protocol: ", text.ok_or("`GIT_PROTOCOL` is not what git sets")?, "\r\n"]);
        }
        head.push_str("\r\n");
        Ok(head.into_bytes())
    }
}

/// What the desk refused, in its words but for its name, with which it begins.
fn told(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    let text = text.trim_end();
    text.strip_prefix("stockade ").or_else(|| text.strip_prefix("stockade: ")).unwrap_or(text).to_owned()
}

/// Passes standard input on until its end.
fn send_input(mut stream: TcpStream) {
    let mut piece = vec![0; PIECE];
    loop {
        match io::stdin().read(&mut piece) {
            Ok(count @ 1..) => {
                let said = frame(INPUT, piece.get(..count).unwrap_or_default());
                if stream.write_all(&said).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                let _ = stream.write_all(&frame(INPUT_ENDS, &[]));
                return;
            }
        }
    }
}

fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// Passes on what comes, until the other side says how it ended.
fn receive(mut stream: impl Read) -> io::Result<i32> {
    let mut body = Vec::new();
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length) as usize;
        if length > MOST_FRAME {
            return Err(ErrorKind::InvalidData.into());
        }
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
        match kind {
            OUTPUT => {
                io::stdout().write_all(&body)?;
                io::stdout().flush()?;
            }
            ERRORS => io::stderr().write_all(&body)?,
            EXIT => {
                let code = <[u8; 4]>::try_from(body.as_slice()).map_err(|_| ErrorKind::InvalidData)?;
                return Ok(i32::try_from(u32::from_be_bytes(code)).unwrap_or(FAILED));
            }
            BROKEN => return Err(io::Error::other(String::from_utf8_lossy(&body))),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(arguments: &[&'a str]) -> Result<Wanted<'a>, &'static str> {
        Wanted::of(&arguments.iter().map(|argument| argument.as_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_git_says_is_understood() {
        let wanted = |host, port, user| Ok(Wanted { host, port, user, command: b"git-upload-pack 'a'" });
        let command = "git-upload-pack 'a'";
        assert_eq!(of(&["git@h.example", command]), wanted("h.example", 22, Some("git")));
        assert_eq!(of(&["-o", "SendEnv=GIT_PROTOCOL", "-4", "-p", "2222", "h", command]), wanted("h", 2222, None));
        for (arguments, says) in [
            (&["-o", "ProxyCommand=id", "h", command][..], "options of ssh"),
            (&["-oProxyCommand=id", "h", command], "only git's own"),
            (&["-F", "/x", "h", command], "only git's own"),
            (&["-p", "0", "h", command], "port"),
            (&["-p", "+1", "h", command], "port"),
            (&["-p"], "only git's own"),
            (&["h"], "no shells"),
            (&["h", "git-upload-pack", "a"], "one argument"),
            (&["a b", command], "no host"),
            (&["a\r\nX:y", command], "no host"),
            (&["@h", command], "no host"),
            (&["git@", command], "no host"),
            (&["h", ""], "empty"),
            (&[], "usage"),
        ] {
            let why = of(arguments).unwrap_err();
            assert!(why.contains(says), "{arguments:?}: {why}");
        }
    }

    #[test]
    fn a_request_is_one_and_its_command_cannot_end_it() {
        let wanted = Wanted { host: "h", port: 22, user: Some("git"), command: b"x\r\n" };
        let desk = Desk { port: 8, token: "T" };
        let text = String::from_utf8(wanted.request(&desk, Some(b"version=2")).unwrap()).unwrap();
        assert!(
            text.starts_with("POST /ssh HTTP/1.1\r\n") && text.ends_with("Stockade-User: git\r\nStockade-Protocol: version=2\r\n\r\n"),
            "{text}"
        );
        assert!(text.contains("\r\nStockade-Command: 780d0a\r\n"), "{text}");
        assert!(wanted.request(&desk, Some(b"a\r\nb")).is_err());
    }

    #[test]
    fn what_breaks_off_is_told_and_what_ends_has_its_code() {
        let exit = frame(EXIT, &7_u32.to_be_bytes());
        assert_eq!(receive(exit.as_slice()).unwrap(), 7);
        assert!(receive([frame(OUTPUT, b""), frame(BROKEN, b"gone")].concat().as_slice()).unwrap_err().to_string().contains("gone"));
        for bad in [&b""[..], &[OUTPUT, 0, 0], &[9, 0, 0, 0, 0], &[OUTPUT, 0xff, 0xff, 0xff, 0xff], &frame(EXIT, b"1")] {
            assert!(receive(bad).is_err(), "{bad:?}");
        }
    }
}
