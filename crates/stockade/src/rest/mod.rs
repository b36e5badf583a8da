//! REST `/v1`: translates requests into calls of the engine, and what comes of them into the JSON that commands print with `--json`.
//!
//! ```text
//!  door ─▶ routes: path, method ─▶ asked: client, query, body ─▶ a thread: a look, or a call of the engine ─▶ answer, or a stream of events
//!              │ 404, 405             │ 400, 415                    │ denied 403 · 4xx · 5xx
//!              └──────────────────────┴─────────────────────────────┴──▶ {"error": {"step", "message", "hint"}}
//! ```
//!
//! It decides nothing. Whoever asks is an agent, whatever it says of itself, and rules are the engine's. What it shows is the asker's own: its
//! receipts and the sandboxes that it made; a person's are not in reach, and nothing here brings changes to the host. `routes` is the one
//! table that requests are matched with and that the OpenAPI document (`openapi`) is made of.

mod answer;
mod approvals;
mod asked;
mod call;
mod events;
mod forms;
mod look;
pub(crate) mod openapi;
mod routes;
mod run;
mod sandboxes;

use std::sync::Arc;

use http::Request;
use stockade_http::{Answer, Answering, Rest};

use crate::mcp::Session;
use answer::Problem;
use asked::Asked;
use routes::{Does, Route};

/// Answers what comes for `/v1`.
pub(crate) struct Service {
    session: Arc<Session>,
}

impl Service {
    /// Of a server.
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    async fn respond(&self, request: Request<bytes::Bytes>) -> Result<Answer, Problem> {
        let (head, body) = request.into_parts();
        let (route, parts) = routes::find(&head.method, head.uri.path())?;
        let mut answer = match Asked::read(&head, body, parts, &self.session) {
            Ok(asked) => self.perform(route, asked).await.unwrap_or_else(|problem| problem.answer()),
            Err(problem) => problem.answer(),
        };
        answer.extensions_mut().insert(stockade_http::Template(route.template));
        Ok(answer)
    }

    async fn perform(&self, route: &'static Route, asked: Asked) -> Result<Answer, Problem> {
        match route.does {
            Does::Look(look) => {
                let session = Arc::clone(&self.session);
                let looked = tokio::task::spawn_blocking(move || look(&asked, &session)).await;
                looked.map_err(|_| Problem::broken("the request could not be carried out"))?.map(|reply| reply.answer())
            }
            Does::Call(make) => call::call(make, asked, &self.session).await,
        }
    }
}

impl Rest for Service {
    fn answer(self: Arc<Self>, request: Request<bytes::Bytes>) -> Answering {
        Box::pin(async move { self.respond(request).await.unwrap_or_else(|problem| problem.answer()) })
    }
}
