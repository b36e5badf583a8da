//! The server as the SDK sees it: what it is, which tools it has, and what a call asks for.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use stockade_core::escape::escape;
use stockade_http::Verdict;

use super::calling::Calling;
use super::elicit::Brought;
use super::granted::Granted;
use super::tools::{self, Order};
use super::{Session, answer, schema};
use crate::engine::asker::Asker;
use crate::failure::Failure;

/// The server.
pub(crate) struct Server {
    session: Arc<Session>,
}

impl Server {
    /// Of a session.
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    fn asker(&self, context: &RequestContext<RoleServer>) -> Asker {
        let client = context.client_info();
        self.session.asker(client.as_ref().map(|client| client.name.as_str()))
    }

    /// What a call asks for; nothing where there is no such tool.
    async fn read(&self, request: CallToolRequestParams, asker: &Asker) -> Option<Result<Order, String>> {
        let given = request.arguments.unwrap_or_default();
        let name = request.name.into_owned();
        if let Some(order) = tools::read(&name, given.clone(), &self.session.workspace) {
            return Some(order);
        }
        let known = match self.session.offered.capability(asker, &name) {
            Some(known) => known,
            None => self.granted(asker).await.ok()?.capabilities.get(&name)?.name.as_str().to_owned(),
        };
        Some(Ok(Order::Capability(known, given)))
    }

    async fn granted(&self, asker: &Asker) -> Result<Granted, Failure> {
        let (session, asker) = (Arc::clone(&self.session), asker.clone());
        let look = move || Granted::to(&asker, &session).inspect(|granted| session.offered.remember(&asker, granted));
        let looked = tokio::task::spawn_blocking(look).await;
        looked.unwrap_or_else(|error| Err(Failure::new("server", error.to_string())))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let version = env!("CARGO_PKG_VERSION");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("stockade", version).with_title("Stockade"))
            .with_instructions(schema::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (mut list, last) = tools::fixed();
        match self.granted(&self.asker(&context)).await {
            Ok(granted) if granted.are_many() => list.extend(tools::for_many()),
            Ok(granted) => list.extend(granted.tools()),
            // The other tools say what is wrong when they are called.
            Err(failure) => self.session.context.printer.warning(format!("no capability is offered: {}", failure.message)),
        }
        list.extend(last);
        Ok(ListToolsResult::with_all_items(list))
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asker = self.asker(&context);
        let name = request.name.clone();
        let mut counted = self.session.metrics.begin();
        let entered = match self.session.calls.enter() {
            Ok(entered) => entered,
            Err(failure) => return Ok(answer::of_failure(&failure).into()),
        };
        if name == tools::APPROVAL_WAIT {
            let result = match tools::awaited(request.arguments.unwrap_or_default()) {
                Ok(awaited) => Calling::new(&self.session, asker, entered, &context).wait_for(awaited).await,
                Err(why) => answer::of_failure(&Failure::new("arguments", why)),
            };
            counted.came_to(answer::verdict(&result));
            return Ok(result.into());
        }
        let brought = Brought::with(&mut request);
        let order = match self.read(request, &asker).await {
            Some(Ok(order)) => order,
            Some(Err(why)) => return Ok(answer::of_failure(&Failure::new("arguments", why)).into()),
            None => return Err(ErrorData::invalid_params(format!("there is no tool `{}`", escape(&name)), None)),
        };
        let response = Calling::new(&self.session, asker, entered, &context).answer(order, brought).await;
        counted.came_to(match &response {
            CallToolResponse::Complete(result) => answer::verdict(result),
            // A person is asked.
            _ => Verdict::Ask,
        });
        Ok(response)
    }
}
