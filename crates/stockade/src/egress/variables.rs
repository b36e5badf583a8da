//! The variables by which programs inside find the proxy and trust its authority. What a person set with `--env` stays as it is.

use std::ffi::OsString;

/// Where the proxy listens inside, the first that no host is allowed at: above the ports that the kernel gives to connections by itself.
const PROXY_PORTS: std::ops::RangeInclusive<u16> = 61_080..=65_535;
/// Where the authorities are inside, whatever the system's own place for them is.
pub(crate) const AUTHORITIES: &str = stockade_sandbox::wayout::AUTHORITIES;

/// Each names a file of authorities to one or more kinds of program.
const TRUST: [&str; 12] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "BUNDLE_SSL_CA_CERT",
    "DENO_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];
const PROXY: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// What is never sent to the proxy: the sandbox's own loopback.
const LOOPBACK: &str = "localhost,127.0.0.1,::1";

/// The proxy's port, where connections to hosts are taken at these.
pub(crate) fn proxy_port(taken: &[u16]) -> u16 {
    PROXY_PORTS.into_iter().find(|port| !taken.contains(port)).unwrap_or(*PROXY_PORTS.start())
}

/// Whether a variable leads to the way out.
pub(crate) fn is_of_way_out(name: &str) -> bool {
    TRUST.contains(&name) || PROXY.contains(&name) || NO_PROXY.contains(&name)
}

/// The variables, but for those in `given`.
pub(crate) fn of_way_out(proxy_port: u16, given: &[String]) -> Vec<(String, OsString)> {
    let proxy = format!("http://127.0.0.1:{proxy_port}");
    let trust = TRUST.iter().map(|name| (*name, AUTHORITIES));
    let proxies = PROXY.iter().map(|name| (*name, proxy.as_str()));
    let exceptions = NO_PROXY.iter().map(|name| (*name, LOOPBACK));
    let all = trust.chain(proxies).chain(exceptions);
    all.filter(|(name, _)| !given.iter().any(|own| own == name)).map(|(name, value)| (name.to_owned(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_set_stays() {
        let all = of_way_out(proxy_port(&[]), &[]);
        assert_eq!(all.len(), TRUST.len() + PROXY.len() + NO_PROXY.len());
        let some = of_way_out(proxy_port(&[61_080]), &["HTTPS_PROXY".to_owned(), "SSL_CERT_FILE".to_owned()]);
        assert_eq!(some.len(), all.len() - 2);
        assert!(some.iter().any(|(name, value)| name == "https_proxy" && value == "http://127.0.0.1:61081"));
    }
}
