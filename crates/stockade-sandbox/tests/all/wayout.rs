//! The inside of the way out: what programs reach, and what they do not. The other end of the channel is played by the test, which looks at what
//! arrives. Everything as root and as an ordinary user.
#![expect(clippy::indexing_slicing, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use stockade_core::demand::{Demand, Level};
use stockade_core::limits::Limits;
use stockade_core::spec::{MountMode, SandboxSpec, Workspace};
use stockade_sandbox::backends::jail::{Jail, JailTemplate};
use stockade_sandbox::backends::local::Local;
use stockade_sandbox::backends::{Backend, BackendError, Start};
use stockade_sandbox::connection::Passing;
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::guard::Guard;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::{Owned, Sandboxes};
use stockade_sandbox::wayout::WayOut;
use stockade_wire::opening::{LENGTH, Opening};

use super::{both, safe};

const PROXY: u16 = 3128;
/// The questions' header.
const HEADER: usize = 12;

fn as_both(name: &str, test: impl Fn(&Path)) {
    both::as_both(&format!("wayout::{name}"), test);
}

/// Egress's end of a channel, and the guest's.
fn pair() -> (OwnedFd, WayOut) {
    let (egress, channel) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (
        egress,
        WayOut {
            channel,
            proxy_port: PROXY,
            ports: vec![443, 8443],
            authorities: None,
            java_authorities: None,
            shown: Vec::new(),
            agent: None,
            alarm: None,
        },
    )
}

struct Inside {
    sandbox: Sandbox,
    workspace: PathBuf,
    _owned: Owned,
}

/// A sandbox around an empty workspace.
fn start(base: &Path, backend: &dyn Backend, way_out: Option<&WayOut>) -> Result<Inside, BackendError> {
    with_start(base, way_out, |start, workspace, owned| {
        Ok(Inside { sandbox: Sandbox::start(backend, start)?, workspace: workspace.to_owned(), _owned: owned.take().unwrap() })
    })
}

fn with_start<T>(base: &Path, way_out: Option<&WayOut>, act: impl FnOnce(&Start<'_>, &Path, &mut Option<Owned>) -> T) -> T {
    let workspace = base.join("work");
    fs::create_dir_all(&workspace).unwrap();
    let owned = Sandboxes::open(&base.join("state")).unwrap().create().unwrap();
    let spec = SandboxSpec {
        workspace: Workspace { path: safe(&workspace), mode: MountMode::Overlay, git_common: None },
        mounts: Vec::new(),
        env: vec![("PATH".into(), OsString::from("/usr/bin:/bin")), ("HOME".into(), OsString::from("/home/sandbox"))],
        cwd: safe(&workspace),
        home: safe(Path::new("/home/sandbox")),
        exec_list: None,
        limits: Limits::default(),
        allow_degraded: BTreeSet::new(),
        path_dirs: Vec::new(),
    };
    let (id, directory) = (owned.id.clone(), owned.directory.clone());
    let start = Start {
        spec: &spec,
        id: &id,
        directory: &directory,
        home: base,
        toolchain_roots: &[],
        hidden: &[],
        guard: &Guard::default(),
        programs: None,
        way_out,
        meanwhile: None,
    };
    act(&start, &workspace, &mut Some(owned))
}

impl Inside {
    fn new(base: &Path, way_out: Option<WayOut>) -> Self {
        let inside = start(base, &Jail::default(), way_out.as_ref()).unwrap();
        // The sandbox has the channel; nobody else may hold it open.
        drop(way_out);
        inside
    }

    fn sh(&mut self, script: &str) -> String {
        self.run(&["sh", "-c", script])
    }

    /// A Python program with what the tests need; lines that it printed.
    fn python(&mut self, program: &str) -> Vec<String> {
        let text = format!("{PRELUDE}\n{program}");
        self.run(&["/usr/bin/python3", "-c", &text]).lines().map(str::to_owned).collect()
    }

    fn run(&mut self, argv: &[&str]) -> String {
        let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) };
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let outcome = self.sandbox.exec(&argv, streams, None).unwrap();
        let errors = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
        assert_eq!((&outcome.ending, errors.as_str()), (&Ending::Code(0), ""));
        String::from_utf8(outcome.stdout.bytes).unwrap()
    }
}

/// `said` connects, sends a word and prints the answer; `tried` prints what an attempt fails with.
const PRELUDE: &str = r"
import errno, socket, struct, sys
def tried(name, attempt):
    try:
        print(name, attempt())
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, repr(error)))
def said(address, port, word):
    s = socket.create_connection((address, port)); s.sendall(word); s.shutdown(socket.SHUT_WR)
    answer = b''
    while chunk := s.recv(1000): answer += chunk
    return answer.decode()
def bound(kind, address, port):
    s = socket.socket(socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((address, port)); s.listen() if kind == socket.SOCK_STREAM else None
    return 'bound'
def question(number, name):
    labels = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0'
    return struct.pack('>6H', number, 0x100, 1, 0, 0, 0) + labels + struct.pack('>2H', 1, 1)
";

/// The next connection that arrives; `None` when the guest is gone.
fn receive(egress: &OwnedFd) -> Option<(Opening, UnixStream)> {
    let mut bytes = [0; LENGTH + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(egress, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = part {
            descriptors.extend(passed);
        }
    }
    if received.bytes == 0 {
        return None;
    }
    let opening = Opening::parse(&bytes[..received.bytes]).expect("a whole message");
    let [descriptor] = <[OwnedFd; 1]>::try_from(descriptors).expect("one descriptor");
    rustix::io::ioctl_fionbio(&descriptor, false).unwrap();
    // It is a TCP socket mostly; the type only reads and writes.
    Some((opening, UnixStream::from(descriptor)))
}

/// Serves until the guest is gone: says back what each connection was made to and what came over it. Questions are answered by `names`. Gives all
/// openings in order.
fn serve(egress: OwnedFd, names: fn(UnixStream)) -> JoinHandle<Vec<Opening>> {
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        while let Some((opening, mut connection)) = receive(&egress) {
            seen.push(opening);
            std::thread::spawn(move || {
                if opening == Opening::Dns {
                    return names(connection);
                }
                let mut word = String::new();
                connection.read_to_string(&mut word).unwrap();
                connection.write_all(format!("{opening:?} {word}").as_bytes()).unwrap();
            });
        }
        seen
    })
}

fn no_names(_: UnixStream) {
    panic!("nobody asks for a name");
}

fn read_question(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut question).unwrap();
    Some(question)
}

fn write_answer(stream: &mut UnixStream, answer: &[u8]) {
    stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], answer].concat()).unwrap();
}

/// Names that begin with `api` have an address that tells their length; others do not exist.
fn answer_to(question: &[u8]) -> Vec<u8> {
    let end = HEADER + question[HEADER..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let (name, kind) = (&question[HEADER..end - 4], &question[end - 4..end - 2]);
    let known = name[1..].starts_with(b"api");
    let has_address = known && kind == [0, 1];
    let flags = if known { 0x80 } else { 0x83 };
    let mut answer = vec![question[0], question[1], 0x81, flags, 0, 1, 0, u8::from(has_address), 0, 0, 0, 0];
    answer.extend_from_slice(&question[HEADER..end]);
    if has_address {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, name.len() as u8]);
    }
    answer
}

fn names(mut stream: UnixStream) {
    while let Some(question) = read_question(&mut stream) {
        write_answer(&mut stream, &answer_to(&question));
    }
}

fn to(address: &str) -> Opening {
    Opening::Transparent(address.parse::<SocketAddr>().unwrap())
}

#[test]
fn connections_arrive_as_they_were_made_and_others_go_nowhere() {
    as_both("connections_arrive_as_they_were_made_and_others_go_nowhere", |base| {
        let (egress, way_out) = pair();
        let mut inside = Inside::new(base, Some(way_out));
        let seen = serve(egress, no_names);
        let answer = inside.sandbox.enforcement().0.get(&Demand::Network).unwrap().clone();
        assert_eq!((answer.level, answer.how.contains("through egress only")), (Level::Enforced, true), "{}", answer.how);
        let lines = inside.python(
            r"
print(said('127.0.0.1', 3128, b'one'))
print(said('::1', 3128, b'two'))
print(said('198.18.0.1', 443, b'three'))
print(said('10.0.0.7', 8443, b'four'))
print(said('2001:db8::1', 443, b'five'))
print(said('127.0.0.1', 443, b'six'))
tried('other port', lambda: said('198.18.0.1', 444, b'x'))
tried('other port 6', lambda: said('2001:db8::1', 80, b'x'))
tried('proxy elsewhere', lambda: said('198.18.0.1', 3128, b'x'))
def datagram(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10); s.connect((address, port)); s.send(question(1, 'api.example'))
    return s.recv(100)
tried('datagram', lambda: datagram('198.18.0.1', 443))
tried('names elsewhere', lambda: datagram('8.8.8.8', 53))
tried('metadata', lambda: said('169.254.169.254', 80, b'x'))
tried('steal proxy', lambda: bound(socket.SOCK_STREAM, '127.0.0.1', 3128))
tried('steal all', lambda: bound(socket.SOCK_STREAM, '0.0.0.0', 3128))
tried('steal one', lambda: bound(socket.SOCK_STREAM, '198.18.0.1', 8443))
tried('steal low', lambda: bound(socket.SOCK_STREAM, '198.18.0.1', 443))
tried('steal names', lambda: bound(socket.SOCK_DGRAM, '127.0.0.1', 53))
tried('own server', lambda: bound(socket.SOCK_STREAM, '127.0.0.1', 8123))
",
        );
        let expected = [
            "Proxy one",
            "Proxy two",
            "Transparent(198.18.0.1:443) three",
            "Transparent(10.0.0.7:8443) four",
            "Transparent([2001:db8::1]:443) five",
            "Transparent(127.0.0.1:443) six",
            "other port ECONNREFUSED",
            "other port 6 ECONNREFUSED",
            "proxy elsewhere ECONNREFUSED",
            "datagram ECONNREFUSED",
            "names elsewhere ECONNREFUSED",
            "metadata ECONNREFUSED",
            "steal proxy EADDRINUSE",
            "steal all EADDRINUSE",
            "steal one EADDRINUSE",
            "steal low EACCES",
            "steal names EACCES",
            "own server bound",
        ];
        assert_eq!(lines, expected);
        assert_eq!(inside.sh("ls -l /proc/self/fd | grep -c socket: || true"), "0\n", "programs get none of the listeners");
        inside.sandbox.destroy();
        let mut seen = seen.join().unwrap();
        let arrived = [to("198.18.0.1:443"), to("10.0.0.7:8443"), to("[2001:db8::1]:443"), to("127.0.0.1:443")];
        assert_eq!(seen.split_off(2), arrived);
        assert_eq!(seen, [Opening::Proxy, Opening::Proxy]);
    });
}

#[test]
fn without_a_way_out_there_is_no_route() {
    as_both("without_a_way_out_there_is_no_route", |base| {
        let mut inside = Inside::new(base, None);
        let lines = inside.python("for a in ['198.18.0.1', '2001:db8::1', '127.0.0.1']: tried(a, lambda: said(a, 443, b'x'))");
        assert_eq!(lines, ["198.18.0.1 ENETUNREACH", "2001:db8::1 ENETUNREACH", "127.0.0.1 ECONNREFUSED"]);
        assert_eq!(inside.sh("cat /etc/resolv.conf"), fs::read_to_string("/etc/resolv.conf").unwrap());
    });
}

#[test]
fn names_are_asked_outside_and_answered_inside() {
    as_both("names_are_asked_outside_and_answered_inside", |base| {
        let (egress, way_out) = pair();
        let mut inside = Inside::new(base, Some(way_out));
        let seen = serve(egress, names);
        assert_eq!(inside.sh("cat /etc/resolv.conf"), "nameserver 127.0.0.1\n");
        assert_eq!(inside.sh("getent ahostsv4 api.example | head -n 1").split_whitespace().next(), Some("198.18.0.13"));
        let lines = inside.python(
            r"
print(sorted({a[4][0] for a in socket.getaddrinfo('api.two.example', 443, proto=socket.IPPROTO_TCP)}))
try: print(socket.getaddrinfo('other.example', 443))
except socket.gaierror as error: print(error.args[0] == socket.EAI_NONAME)
s = socket.create_connection(('127.0.0.1', 53)); q = question(7, 'api.by.stream'); s.sendall(struct.pack('>H', len(q)) + q)
r = s.makefile('rb'); length, = struct.unpack('>H', r.read(2)); a = r.read(length); print(a[:2], '.'.join(str(b) for b in a[-4:]))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.connect(('::1', 53)); s.send(question(9, 'api.six')); print(s.recv(512)[-1])
",
        );
        assert_eq!(lines, ["['198.18.0.17']", "True", "b'\\x00\\x07' 198.18.0.15", "9"]);
        inside.sandbox.destroy();
        // One stream for all datagrams, and the connection that a program made itself.
        assert_eq!(seen.join().unwrap(), [Opening::Dns, Opening::Dns]);
    });
}

/// Waits for three questions and answers the last first, with nonsense between; then ends the stream, so that the next question opens another.
fn confusing_names(mut stream: UnixStream) {
    let questions: Vec<Vec<u8>> = (0..3).map_while(|_| read_question(&mut stream)).collect();
    for question in questions.iter().rev() {
        write_answer(&mut stream, &[&[0xff, 0xff, 0x81], &[0; 9][..]].concat());
        write_answer(&mut stream, question);
        write_answer(&mut stream, &answer_to(question));
    }
}

#[test]
fn each_gets_the_answer_to_its_own_question() {
    as_both("each_gets_the_answer_to_its_own_question", |base| {
        let (egress, way_out) = pair();
        let mut inside = Inside::new(base, Some(way_out));
        let seen = serve(egress, confusing_names);
        // What is no question is not carried: too short, too long, an answer.
        let lines = inside.python(
            r"
for turn in range(3):
    asking = []
    for name in ['api.a', 'api.bb', 'api.ccc']:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', 53)); s.settimeout(1)
        s.send(b'short'); s.send(b'\0' * 5000); s.send(b'\0\0\x80' + bytes(20))
        asking.append((s, name))
    while True:
        # Who asks by datagrams asks again.
        for s, name in asking: s.send(question(77, name))
        try: answers = [s.recv(512) for s, name in asking]; break
        except TimeoutError: pass
    print([(a[1], a[-1]) for a in answers])
",
        );
        assert_eq!(lines, vec!["[(77, 7), (77, 8), (77, 9)]"; 3]);
        inside.sandbox.destroy();
        let seen = seen.join().unwrap();
        assert!(seen.len() >= 3 && seen.iter().all(|opening| *opening == Opening::Dns), "{seen:?}");
    });
}

#[test]
fn two_hundred_connections_at_once() {
    as_both("two_hundred_connections_at_once", |base| {
        let (egress, way_out) = pair();
        let mut inside = Inside::new(base, Some(way_out));
        let seen = serve(egress, no_names);
        let lines = inside.python(
            r"
all = [socket.create_connection(('198.18.0.%d' % n, 443)) for n in range(1, 201)]
for s in all: s.sendall(b'word'); s.shutdown(socket.SHUT_WR)
answers = [b''.join(iter(lambda: s.recv(1000), b'')).decode() for s in all]
print(all != [] and answers == ['Transparent(198.18.0.%d:443) word' % n for n in range(1, 201)])
",
        );
        assert_eq!(lines, ["True"]);
        inside.sandbox.destroy();
        let seen: BTreeSet<String> = seen.join().unwrap().iter().map(|opening| format!("{opening:?}")).collect();
        assert_eq!(seen.len(), 200);
    });
}

/// Takes connections, and tells their number when told to stop.
fn count(egress: OwnedFd, wanted: usize) -> (JoinHandle<()>, Receiver<usize>, Sender<()>) {
    let (counted, number) = channel();
    let (stop, stopped) = channel();
    let thread = std::thread::spawn(move || {
        let held: Vec<_> = (0..wanted).map_while(|_| receive(&egress)).collect();
        counted.send(held.len()).unwrap();
        let _ = stopped.recv();
    });
    (thread, number, stop)
}

#[test]
fn a_full_channel_stops_nothing_else() {
    as_both("a_full_channel_stops_nothing_else", |base| {
        let (egress, way_out) = pair();
        let mut inside = Inside::new(base, Some(way_out));
        let program = "import socket, time\nall = [socket.create_connection(('198.18.0.1', 443)) for _ in range(900)]\nopen('ready', 'w').close()\ntime.sleep(1000)";
        inside.sandbox.write_file(&safe(&inside.workspace.join("flood.py")), 0o644, &mut program.as_bytes()).unwrap();
        inside.sh("/usr/bin/python3 flood.py > /dev/null 2>&1 & while [ ! -e ready ]; do sleep 0.02; done");
        // Nobody has received one; most wait in the kernel.
        assert_eq!(inside.sh("echo still here"), "still here\n");
        let file = safe(&inside.workspace.join("file"));
        inside.sandbox.write_file(&file, 0o644, &mut &b"contents"[..]).unwrap();
        let mut back = Vec::new();
        inside.sandbox.read_file(&file, &mut back).unwrap();
        assert_eq!(back, b"contents");
        let (thread, number, stop) = count(egress, 900);
        assert_eq!(number.recv().unwrap(), 900, "every one arrives once there is room");
        stop.send(()).unwrap();
        thread.join().unwrap();
        assert_eq!(inside.sh("echo still here"), "still here\n");
    });
}

#[test]
fn without_egress_connections_end_and_programs_go_on() {
    as_both("without_egress_connections_end_and_programs_go_on", |base| {
        let (egress, way_out) = pair();
        let mut inside = Inside::new(base, Some(way_out));
        drop(egress);
        let lines = inside.python(
            r"
for address, port in [('127.0.0.1', 3128), ('198.18.0.1', 443), ('127.0.0.1', 53)]:
    for _ in range(100):
        s = socket.create_connection((address, port)); s.settimeout(20)
        if s.recv(1): print('something')
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', 53)); s.send(question(1, 'api.example'))
print('goes on')
",
        );
        assert_eq!(lines, ["goes on"]);
        assert_eq!(inside.sh("echo still here"), "still here\n");
    });
}

#[test]
fn walls_that_cannot_lead_out_say_so() {
    as_both("walls_that_cannot_lead_out_say_so", |base| {
        let refused = |backend: &dyn Backend| {
            let (_egress, way_out) = pair();
            let error = start(base, backend, Some(&way_out)).err().expect("a refusal");
            assert!(error.hint().is_some(), "{error}");
            error.to_string()
        };
        assert!(refused(&Jail { passing: Passing::Impossible }).contains("descriptors can be passed"));
        assert!(refused(&Local { passing: Passing::Possible }).contains("there is no wall"));
        let (_egress, way_out) = pair();
        let error =
            with_start(base, Some(&way_out), |start, _, _| JailTemplate::prepare(start, Passing::Possible).err()).expect("a refusal");
        assert!(error.to_string().contains("template"), "{error}");
        let (_egress, way_out) = pair();
        let clash = WayOut { ports: vec![443, PROXY], ..way_out };
        assert!(start(base, &Jail::default(), Some(&clash)).err().expect("a refusal").to_string().contains("3128"));
    });
}
