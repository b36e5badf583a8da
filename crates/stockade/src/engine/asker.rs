//! Who asks: the person at the command line, or an agent whose client says what it is.
//!
//! What a client says of itself is a name and no proof. It chooses among rules about agents, and never makes its caller a person.

use stockade_core::escape::escape;
use stockade_policy::Principal;
use stockade_store::person;
use stockade_store::settings::Caller;

/// Longer than any honest name.
const MOST_NAME: usize = 64;
/// A client that says nothing of itself.
const UNNAMED: &str = "unknown";

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// Whoever typed the command.
    #[default]
    Person,
    /// An agent, behind a surface that no person types at.
    Agent(AgentName),
}

/// An agent's name: `client/name`, both in characters that mean nothing elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AgentName {
    client: String,
    name: String,
}

impl AgentName {
    /// From what a client says of itself and what a person called the agent.
    pub(crate) fn new(client: &str, name: &str) -> Self {
        Self { client: plain(client), name: plain(name) }
    }

    /// The whole.
    pub(crate) fn whole(&self) -> String {
        format!("{}/{}", self.client, self.name)
    }
}

impl Asker {
    /// As rules know them.
    pub(crate) fn principal(&self) -> Principal {
        match self {
            Self::Person => Principal::human(person::name()),
            Self::Agent(agent) => Principal::agent(agent.whole()),
        }
    }

    /// Whose limits hold.
    pub(crate) fn caller(&self) -> Caller {
        match self {
            Self::Person => Caller::Run,
            Self::Agent(_) => Caller::Agent,
        }
    }

    /// The agent, where it is one.
    pub(crate) fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Person => None,
            Self::Agent(agent) => Some(agent),
        }
    }
}

impl AgentName {
    /// The client's part.
    pub(crate) fn client(&self) -> &str {
        &self.client
    }
}

/// Escaped, bounded, and without what separates the two parts.
fn plain(text: &str) -> String {
    let bounded: String = text.chars().take(MOST_NAME).collect();
    let plain = |c: char| if c == '/' || c.is_whitespace() { '-' } else { c };
    let escaped: String = escape(bounded.trim()).chars().map(plain).take(MOST_NAME).collect();
    if escaped.is_empty() { UNNAMED.to_owned() } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_name_its_way_out() {
        let check = |client: &str, expected: &str| assert_eq!(AgentName::new(client, "main").whole(), expected, "{client:?}");
        check("claude-code", "claude-code/main");
        check("", "unknown/main");
        check("a/b", "a-b/main");
        check("Claude Code", "Claude-Code/main");
        check("x\u{202e}y\n", "x\\u{202e}y/main");
        assert_eq!(AgentName::new(&"é".repeat(9000), "n").whole().chars().count(), MOST_NAME + 2);
        let asker = Asker::Agent(AgentName::new("root\"", "main"));
        assert_eq!(asker.principal(), Principal::agent(asker.agent().unwrap().whole()), "never a person");
    }
}
