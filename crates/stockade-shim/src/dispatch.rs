//! What each request of the host makes the server do.
//!
//! Owns the meaning of frames: which begin a request, which are about one, and which are answered at once.

use stockade_wire::codec::Bytes;
use stockade_wire::message::{Exec, Reply, Request, Stdio, Stream};

use crate::context::{Progress, Slot};
use crate::failure::Failure;
use crate::files::{Reading, Writing};
use crate::forward::{Connection, Listener};
use crate::listing::Listing;
use crate::run::Run;
use crate::server::{End, Entry, Server};
use crate::task::Task;
use crate::transfer::Transfer;
use crate::tree::{self, Removal};
use crate::watch::Watch;

/// How an answered request went: with a reply, or with a task that goes on.
enum Begun {
    Answered(Reply),
    Lasting(Task),
}

impl Server {
    /// Handles one frame.
    pub(crate) fn dispatch(&mut self, id: u32, request: Request) -> Result<(), End> {
        match request {
            Request::Data { stream, bytes } => self.data(id, &stream, &bytes),
            Request::Eof { stream } => self.end_of_data(id, &stream),
            Request::Credit { stream, bytes } => self.about(id, |task| task.grant(&stream, bytes)),
            Request::Signal { signal } => self.about(id, |task| {
                if let Task::Run(run) = task {
                    run.signal(signal);
                }
            }),
            Request::Resize { rows, cols } => self.about(id, |task| {
                if let Task::Run(run) = task {
                    run.resize(rows, cols);
                }
            }),
            Request::Cancel {} => self.cancel(id),
            Request::Ping {} => self.context.reply(id, &Reply::Pong {}),
            Request::Shutdown {} => {
                self.context.signal_all(libc::SIGKILL);
                self.context.reply(id, &Reply::Done {});
                return Err(End::Asked);
            }
            Request::Hello { .. }
            | Request::Begin { .. }
            | Request::Jail { .. }
            | Request::Enter { .. }
            | Request::Confine { .. }
            | Request::Mould { .. }
            | Request::Clone {} => {
                self.context.fail(id, Failure::invalid("this request is only possible at the start"));
            }
            Request::Run { exec } => self.run(id, &exec),
            Request::ReadFile { path, offset, limit } => {
                self.begin(id, |_| Reading::start(&path.0, offset, limit, None).map(|task| Begun::Lasting(Task::Reading(task))));
            }
            Request::WriteFile { path, mode, parents } => {
                self.begin(id, |_| Writing::start(&path.0, mode, parents, None).map(|task| Begun::Lasting(Task::Writing(task))));
            }
            Request::ReadFileTo { path, offset, limit } => {
                let passed = self.context.channel.take_descriptors(1);
                self.begin(id, |server| {
                    let pipe = Transfer::start(&server.context, id, passed, Slot::Input)?;
                    Reading::start(&path.0, offset, limit, Some(pipe)).map(|task| Begun::Lasting(Task::Reading(task)))
                });
            }
            Request::WriteFileFrom { path, mode, parents } => {
                let passed = self.context.channel.take_descriptors(1);
                self.begin(id, |server| {
                    let pipe = Transfer::start(&server.context, id, passed, Slot::Output)?;
                    Writing::start(&path.0, mode, parents, Some(pipe)).map(|task| Begun::Lasting(Task::Writing(task)))
                });
            }
            Request::ListDir { path } => {
                self.begin(id, |_| Listing::start(&path.0).map(|task| Begun::Lasting(Task::Listing(task))));
            }
            Request::Stat { path } => {
                self.begin(id, |_| tree::stat(&path.0).map(|stat| Begun::Answered(Reply::Described { stat })));
            }
            Request::Remove { path, recursive } => self.begin(id, |_| {
                Ok(match tree::remove(&path.0, recursive)? {
                    Removal::Done => Begun::Answered(Reply::Done {}),
                    Removal::Underway(task) => Begun::Lasting(Task::Removing(task)),
                })
            }),
            Request::Rename { from, to } => {
                self.begin(id, |_| tree::rename(&from.0, &to.0).map(|()| Begun::Answered(Reply::Done {})));
            }
            Request::MakeDir { path, mode, parents } => {
                self.begin(id, |_| tree::make_directory(&path.0, mode, parents).map(|()| Begun::Answered(Reply::Done {})));
            }
            Request::Watch { path, recursive } => {
                self.begin(id, |server| {
                    Watch::start(&server.context, id, &path.0, recursive).map(|task| Begun::Lasting(Task::Watch(task)))
                });
            }
            Request::Connect { port } => {
                self.begin(id, |server| Connection::start(&server.context, id, port).map(|task| Begun::Lasting(Task::Connection(task))));
            }
            Request::Listen { port } => {
                self.begin(id, |server| Listener::start(&mut server.context, id, port).map(|task| Begun::Lasting(Task::Listener(task))));
            }
            Request::Freeze { frozen } => self.begin(id, |server| {
                server.frozen = frozen;
                server.context.signal_all(if frozen { libc::SIGSTOP } else { libc::SIGCONT });
                Ok(Begun::Answered(Reply::Done {}))
            }),
        }
        Ok(())
    }

    fn begin(&mut self, id: u32, start: impl FnOnce(&mut Self) -> Result<Begun, Failure>) {
        match self.admit(id).and_then(|()| start(self)) {
            Ok(Begun::Answered(reply)) => self.context.reply(id, &reply),
            Ok(Begun::Lasting(task)) => self.insert(id, task),
            Err(failure) => {
                self.context.fail(id, failure);
            }
        }
    }

    fn run(&mut self, id: u32, exec: &Exec) {
        // Taken before anything can fail, so that they are never mistaken for another request's.
        let passed = match exec.stdio {
            Stdio::Passed {} => self.context.channel.take_descriptors(3),
            Stdio::Piped { .. } | Stdio::Pty { .. } => Vec::new(),
        };
        self.begin(id, |server| {
            if server.frozen {
                return Err(Failure::invalid("everything inside is stopped; continue it first"));
            }
            Run::start(&mut server.context, id, exec, passed).map(|run| Begun::Lasting(Task::Run(run)))
        });
    }

    fn data(&mut self, id: u32, stream: &Stream, bytes: &Bytes) {
        let Some(entry) = self.requests.get_mut(&id) else { return self.missing(id) };
        if *stream != (Stream::Input {}) {
            return self.abort(id, Failure::invalid("only the input of a request can be written"));
        }
        match entry.task.input(&bytes.0, &mut self.context, id) {
            Ok(progress) => self.proceed(id, progress),
            Err(_) => self.abort(id, Failure::invalid("more data was sent than was granted")),
        }
    }

    fn end_of_data(&mut self, id: u32, stream: &Stream) {
        let Some(entry) = self.requests.get_mut(&id) else { return self.missing(id) };
        if *stream != (Stream::Input {}) {
            return self.abort(id, Failure::invalid("only the input of a request can be ended"));
        }
        let progress = entry.task.end_input(&mut self.context, id);
        self.proceed(id, progress);
    }

    fn cancel(&mut self, id: u32) {
        let Some(Entry { task, .. }) = self.requests.get_mut(&id) else { return self.missing(id) };
        let progress = task.cancel(&mut self.context, id);
        self.proceed(id, progress);
    }

    fn about(&mut self, id: u32, act: impl FnOnce(&mut Task)) {
        match self.requests.get_mut(&id) {
            Some(entry) => {
                act(&mut entry.task);
                self.proceed(id, Progress::Again);
            }
            None => self.missing(id),
        }
    }

    /// A message about a request that has ended crossed its last reply; one that never was is an error.
    fn missing(&mut self, id: u32) {
        if !self.was_used(id) {
            self.context.fail(id, Failure::invalid(format!("no request has the id {id}")));
        }
    }
}
