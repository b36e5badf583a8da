//! Answers to DNS questions from a sandbox: made-up addresses for allowed names, "no such name" for all others.
//!
//! No question ever leaves the machine from here, so a name carries nothing out. Real addresses are looked up only for connections that
//! the rules allow, and are never told to the sandbox.

use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use stockade_core::host::HostName;

/// The longest message that is read.
pub const MAX_MESSAGE: usize = 4096;
/// Seconds that an answer may be kept.
const LIFETIME: u32 = 60;

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It is allowed, and this address stands for it.
    At(Ipv4Addr),
    /// There is no such name, as far as the sandbox is told.
    Nothing,
}

/// The answer to one message; `None` where it deserves none. `look_up` is asked at most once.
pub fn answer(message: &[u8], look_up: impl FnOnce(&HostName) -> Known) -> Option<Vec<u8>> {
    if message.len() > MAX_MESSAGE {
        return None;
    }
    let request = Message::from_vec(message).ok()?;
    if request.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.add_queries(request.queries.iter().take(1).cloned());
    response.metadata.response_code = match (request.metadata.op_code, request.queries.as_slice()) {
        (OpCode::Query, [query]) if query.query_class() == DNSClass::IN => {
            let name = query.name().to_ascii();
            let host = HostName::parse(name.strip_suffix('.').unwrap_or(&name));
            match host.map_or(Known::Nothing, |host| look_up(&host)) {
                Known::Nothing => ResponseCode::NXDomain,
                Known::At(address) => {
                    // Other types exist for nobody: an empty answer, which every resolver takes for "no such record".
                    if query.query_type() == RecordType::A {
                        response.add_answer(Record::from_rdata(query.name().clone(), LIFETIME, RData::A(address.into())));
                    }
                    ResponseCode::NoError
                }
            }
        }
        (OpCode::Query, [_]) => ResponseCode::Refused,
        (OpCode::Query, _) => ResponseCode::FormErr,
        _ => ResponseCode::NotImp,
    };
    response.to_vec().ok()
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Query;
    use hickory_proto::rr::Name;

    use super::*;

    fn ask(name: &str, kind: RecordType) -> (ResponseCode, Vec<String>) {
        let mut message = Message::query();
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        let look_up = |host: &HostName| match host {
            HostName::Name(name) if name == "api.example" => Known::At(Ipv4Addr::new(198, 18, 0, 1)),
            _ => Known::Nothing,
        };
        let reply = Message::from_vec(&answer(&message.to_vec().unwrap(), look_up).unwrap()).unwrap();
        assert_eq!((reply.metadata.id, &reply.queries), (message.metadata.id, &message.queries));
        (reply.metadata.response_code, reply.answers.iter().map(|record| record.data.to_string()).collect())
    }

    #[test]
    fn h05_only_allowed_names_have_an_address() {
        assert_eq!(ask("API.example.", RecordType::A), (ResponseCode::NoError, vec!["198.18.0.1".to_owned()]));
        assert_eq!(ask("api.example.", RecordType::AAAA), (ResponseCode::NoError, vec![]));
        assert_eq!(ask("api.example.", RecordType::TXT), (ResponseCode::NoError, vec![]));
        assert_eq!(ask("secret.attacker.example.", RecordType::A), (ResponseCode::NXDomain, vec![]));
        assert_eq!(ask("secret.attacker.example.", RecordType::TXT), (ResponseCode::NXDomain, vec![]));
        assert_eq!(ask("api\\.example.", RecordType::A), (ResponseCode::NXDomain, vec![]));
        assert_eq!(ask("127.0.0.1.", RecordType::A), (ResponseCode::NXDomain, vec![]));
        assert_eq!(ask(".", RecordType::NS), (ResponseCode::NXDomain, vec![]));
    }

    #[test]
    fn odd_messages_are_refused_or_dropped() {
        let never = |_: &HostName| -> Known { panic!("asked") };
        assert_eq!(answer(b"", never), None);
        assert_eq!(answer(&[0; 11], never), None);
        assert_eq!(answer(&vec![0; MAX_MESSAGE + 1], never), None);
        let code =
            |message: &Message| Message::from_vec(&answer(&message.to_vec().unwrap(), never).unwrap()).unwrap().metadata.response_code;
        let mut message = Message::query();
        assert_eq!(code(&message), ResponseCode::FormErr);
        message.add_query(Query::query(Name::from_ascii("api.example.").unwrap(), RecordType::A));
        message.queries[0].set_query_class(DNSClass::CH);
        assert_eq!(code(&message), ResponseCode::Refused);
        message.metadata.op_code = OpCode::Update;
        assert_eq!(code(&message), ResponseCode::NotImp);
        message.metadata.message_type = MessageType::Response;
        assert_eq!(answer(&message.to_vec().unwrap(), never), None);
    }
}
