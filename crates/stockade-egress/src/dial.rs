//! Resolve, check, dial the checked address.
//!
//! A name is looked up once; addresses that are not on the internet are left out unless somebody granted them by address; one of those
//! that remain is dialled. So a name that changes its address between check and connection gains nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use stockade_core::host::HostName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::address::AddressClass;
use crate::refusal::Refusal;
use crate::resolve::Resolve;
use crate::rules::Rules;

/// The most addresses that are tried.
const MAX_ADDRESSES: usize = 8;
/// How long before the next address is tried beside the last.
const STAGGER: Duration = Duration::from_millis(250);
/// How long a look-up and all attempts may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The addresses of a host that may be dialled, checked.
pub(crate) async fn checked_addresses(rules: &Rules, resolver: &dyn Resolve, host: &HostName, port: u16) -> Result<Vec<IpAddr>, Refusal> {
    let addresses = match host {
        HostName::Address(address) => vec![*address],
        HostName::Name(name) => match tokio::time::timeout(PATIENCE, resolver.addresses(name)).await {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(why)) => return Err(unreachable(host, port, why)),
            Err(_) => return Err(unreachable(host, port, "its name could not be looked up in time".to_owned())),
        },
    };
    let may_dial = |address: &IpAddr| AddressClass::of(*address) == AddressClass::Public || rules.grants_address(*address, port);
    let allowed: Vec<IpAddr> = addresses.iter().copied().filter(may_dial).take(MAX_ADDRESSES).collect();
    match (allowed.is_empty(), addresses.first()) {
        (false, _) => Ok(allowed),
        (true, Some(address)) => Err(Refusal::Address { host: host.clone(), address: *address, port, class: AddressClass::of(*address) }),
        (true, None) => Err(unreachable(host, port, "its name has no address".to_owned())),
    }
}

/// Connects to the host at one of its checked addresses.
pub(crate) async fn dial(rules: &Rules, resolver: &dyn Resolve, host: &HostName, port: u16) -> Result<TcpStream, Refusal> {
    let addresses = checked_addresses(rules, resolver, host, port).await?;
    let stream = match tokio::time::timeout(PATIENCE, first_to_answer(addresses, port)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return Err(unreachable(host, port, why)),
        Err(_) => return Err(unreachable(host, port, "it did not answer in time".to_owned())),
    };
    // Small requests must not wait for more to come; failing to say so only makes them slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn first_to_answer(addresses: Vec<IpAddr>, port: u16) -> Result<TcpStream, String> {
    let mut last = "it has no address".to_owned();
    if let [address] = addresses.as_slice() {
        return TcpStream::connect(SocketAddr::new(*address, port)).await.map_err(|error| error.to_string());
    }
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.into_iter();
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(TcpStream::connect(SocketAddr::new(address, port)));
        } else if attempts.is_empty() {
            return Err(last);
        }
        let stagger = if waiting.len() == 0 { PATIENCE } else { STAGGER };
        match tokio::time::timeout(stagger, attempts.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => last = error.to_string(),
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
    }
}

fn unreachable(host: &HostName, port: u16, why: String) -> Refusal {
    Refusal::Unreachable { host: host.clone(), port, why }
}

#[cfg(test)]
mod tests {
    use stockade_core::host::HostPattern;

    use super::*;
    use crate::resolve::Addresses;

    struct Fixed(Vec<&'static str>);

    impl Resolve for Fixed {
        fn addresses<'a>(&'a self, _name: &'a str) -> Addresses<'a> {
            Box::pin(std::future::ready(Ok(self.0.iter().map(|text| text.parse().unwrap()).collect())))
        }
    }

    async fn check(hosts: &[&str], answers: &[&'static str], host: &str, port: u16) -> Result<Vec<String>, AddressClass> {
        let rules = Rules::of_hosts(hosts.iter().map(|text| HostPattern::parse(text).unwrap()));
        let host = HostName::parse(host).unwrap();
        match checked_addresses(&rules, &Fixed(answers.to_vec()), &host, port).await {
            Ok(addresses) => Ok(addresses.iter().map(ToString::to_string).collect()),
            Err(Refusal::Address { class, .. }) => Err(class),
            Err(other) => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn h09_and_h12_only_checked_addresses_are_dialled() {
        let hosts = ["a.example", "169.254.169.254", "127.0.0.1:3000"];
        assert_eq!(check(&hosts, &["1.1.1.1", "10.0.0.1"], "a.example", 443).await, Ok(vec!["1.1.1.1".to_owned()]));
        assert_eq!(check(&hosts, &["10.0.0.1"], "a.example", 443).await, Err(AddressClass::Private));
        assert_eq!(check(&hosts, &["::ffff:127.0.0.1"], "a.example", 443).await, Err(AddressClass::Loopback));
        assert_eq!(check(&["a.example"], &["169.254.169.254"], "a.example", 80).await, Err(AddressClass::LinkLocal));
        assert_eq!(check(&hosts, &["127.0.0.1"], "a.example", 3000).await, Ok(vec!["127.0.0.1".to_owned()]));
        assert_eq!(check(&hosts, &["127.0.0.1"], "a.example", 80).await, Err(AddressClass::Loopback));
        assert_eq!(check(&hosts, &[], "169.254.169.254", 80).await, Ok(vec!["169.254.169.254".to_owned()]));
        assert_eq!(check(&[], &[], "10.0.0.1", 80).await, Err(AddressClass::Private));
    }
}
