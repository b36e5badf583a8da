//! `stockade-shim`: the guest program. It applies the jail plan, then runs programs and moves files over one stream.
//!
//! Threat assumption: the programs it starts are hostile and run as the same user. It holds nothing worth taking: no secret but
//! the token of its own stream, no descriptor of the host but that stream; the host in turn believes nothing it says.
//! It is one thread around one epoll loop, small and static, so that it starts in no time and runs behind every wall.
//!
//! On older kernels: `close_range` (5.9) is a second lock only; everything else has been there since 4.13.
//!
//! ```text
//! Hello ─▶ Welcome ─▶ [ Jail or Confine ─▶ Jailed ] ─▶ serve until the stream ends
//!                   └▶ Mould ─▶ Moulded ─▶ Clone ─▶ Cloned ─▶ Clone ─▶ …
//!                                            └▶ a clone: Begin ─▶ Jail ─▶ Jailed ─▶ serve until its stream ends
//! ```
//!
//! It has a `main` of its own: what Rust's runtime would do before (look at the standard streams, find the limits of the stack by
//! reading `/proc/self/maps`, handle its overflow) takes a noticeable part of its start, and helps nobody here.
//!
//! The same program is a tool inside, where it is shown by the name of one: see [`helper`].

#![cfg_attr(not(test), no_main)]

mod channel;
mod context;
mod descendants;
mod diagnose;
mod dispatch;
mod ends;
mod failure;
mod files;
mod flow;
mod forward;
mod helper;
mod jail;
mod listing;
mod memory;
mod names;
mod paths;
mod pty;
mod run;
mod server;
mod signals;
mod spawn;
mod task;
mod token;
mod transfer;
mod tree;
mod watch;
mod wayout;

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::FdFlags;
use stockade_wire::VERSION;
use stockade_wire::message::{Reply, Request};
use stockade_wire::plan::{Basis, JailPlan, Place, TemplatePlan};

use crate::channel::Channel;
use crate::helper::Tool;
use crate::server::{End, Server};
use crate::signals::Role;
use crate::token::Token;
use crate::wayout::Way;

/// The descriptor that the control stream is expected on.
const CONTROL: i32 = 3;
/// A tool takes fewer than this.
const MOST_ARGUMENTS: usize = 16;
/// What a person sees who starts it by hand.
const HINT: &[u8] = b"stockade-shim: started by stockade inside a sandbox; not meant to be run by hand\n";

// SAFETY: this is the program's `main`, by the name and with the signature that the C library calls.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(count: libc::c_int, arguments: *const *const libc::c_char) -> libc::c_int {
    signals::ignore_broken_pipes();
    if let Some(tool) = argument(count, arguments, 0).and_then(Tool::named) {
        let rest: Vec<&[u8]> = (1..MOST_ARGUMENTS).map_while(|at| argument(count, arguments, at)).collect();
        return tool.run(&rest);
    }
    match guest() {
        Some(End::Asked) => libc::EXIT_SUCCESS,
        Some(End::Broken) | None => libc::EXIT_FAILURE,
    }
}

/// One of the program's arguments. Nothing changes them while it runs.
fn argument(count: libc::c_int, arguments: *const *const libc::c_char, at: usize) -> Option<&'static [u8]> {
    if usize::try_from(count).is_ok_and(|count| at < count) {
        // SAFETY: the C library gives `main` an array of `count` pointers that stays as it is, and `at` is less.
        let place = unsafe { arguments.add(at) };
        // SAFETY: the same.
        let text = unsafe { *place };
        // SAFETY: each of them points to a C string that lives as long as the process.
        return Some(unsafe { CStr::from_ptr(text) }.to_bytes());
    }
    None
}

/// `None` where the handshake or the jail failed.
fn guest() -> Option<End> {
    #[expect(clippy::disallowed_methods, reason = "the one variable the guest reads, and the one place")]
    let token = std::env::var_os(token::VARIABLE).and_then(|digits| Token::parse(digits.as_bytes()));
    let (Some(token), Some(control)) = (token, control_stream()) else {
        let _ = rustix::io::write(rustix::stdio::stderr(), HINT);
        return None;
    };
    let mut channel = Channel::new(control);
    greet(&mut channel, &token)?;
    let mut way = Way::Closed;
    let first = match channel.read_one() {
        Ok((id, Request::Begin { basis })) => {
            way = build(&mut channel, id, &basis, jail::Part::Whole)?;
            None
        }
        Ok((id, Request::Confine { plan })) => {
            answer(&mut channel, id, jail::confine_bare(&plan))?;
            None
        }
        Ok((id, Request::Mould { plan })) => {
            (channel, way) = become_template(channel, id, &plan)?;
            None
        }
        Ok(other) => Some(other),
        Err(broken) => return Some(broken.into()),
    };
    // Programs run as the same user; they shall not read the token from our environment or write to our memory.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut server = Server::new(channel, Role::current()).ok()?;
    if let Way::Open(way_out) = way {
        server.lead_out(way_out).ok()?;
    }
    Some(server.serve(first))
}

/// Builds a jail around this process, in which it serves from then on.
fn build(channel: &mut Channel, id: u32, basis: &Basis, part: jail::Part<'_>) -> Option<Way> {
    let outcome = jail::begin(basis, part).and_then(|begun| {
        let (plan, passed) = plan(channel).ok_or_else(jail::StepFailure::without_a_plan)?;
        jail::complete(begun, &plan, passed, || place(channel))
    });
    answer(channel, id, outcome)
}

/// Makes this process a template until its stream ends. It returns only in clones, each with its own stream, when their jails stand.
fn become_template(mut channel: Channel, id: u32, plan: &TemplatePlan) -> Option<(Channel, Way)> {
    let passed = channel.take_descriptors(usize::MAX);
    let mut moulded = match jail::mould(plan, passed) {
        Ok(moulded) => moulded,
        Err(failure) => {
            let _ = answer(&mut channel, id, Err(failure));
            return None;
        }
    };
    let (steps, namespaces) = (std::mem::take(&mut moulded.steps), std::mem::take(&mut moulded.namespaces));
    channel.write_one(id, &Reply::Moulded { steps, namespaces }, &[]).ok()?;
    let mut cloned = jail::clones(channel, moulded)?;
    let Ok((id, Request::Begin { basis })) = cloned.channel.read_one() else { return None };
    let way = build(&mut cloned.channel, id, &basis, jail::Part::Own(&cloned.moulded.shared))?;
    Some((cloned.channel, way))
}

/// Waits until the host knows what the root shall be.
fn plan(channel: &mut Channel) -> Option<(JailPlan, Vec<OwnedFd>)> {
    match channel.read_one() {
        Ok((_, Request::Jail { plan })) => Some((plan, channel.take_descriptors(usize::MAX))),
        Ok(_) | Err(_) => None,
    }
}

/// Waits until the host says where to go.
fn place(channel: &mut Channel) -> Option<(Place, Vec<OwnedFd>)> {
    match channel.read_one() {
        Ok((_, Request::Enter { place })) => Some((place, channel.take_descriptors(usize::MAX))),
        Ok(_) | Err(_) => None,
    }
}

fn control_stream() -> Option<OwnedFd> {
    // SAFETY: the borrow lasts for this one call, which only asks whether the descriptor is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(CONTROL) };
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open, whoever started us left it for us, and nothing else in this program takes it.
    Some(unsafe { OwnedFd::from_raw_fd(CONTROL) })
}

fn greet(channel: &mut Channel, token: &Token) -> Option<()> {
    let Ok((id, Request::Hello { version, token: shown })) = channel.read_one() else { return None };
    // Both are compared before either decides, so that the answer does not depend on which was wrong.
    let genuine = token.matches(&shown);
    if version != VERSION || !genuine {
        return None;
    }
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
    channel.write_one(id, &Reply::Welcome { version: VERSION, pid }, &[]).ok()
}

fn answer(channel: &mut Channel, id: u32, outcome: Result<jail::Jailed, jail::StepFailure>) -> Option<Way> {
    match outcome {
        Ok(jailed) => {
            channel.write_one(id, &Reply::Jailed { report: jailed.report }, &jailed.exports).ok()?;
            Some(jailed.way)
        }
        Err(failure) => {
            let reply = Reply::JailFailed { step: failure.step.to_owned(), detail: failure.detail, errno: failure.errno };
            let _ = channel.write_one(id, &reply, &[]);
            None
        }
    }
}
