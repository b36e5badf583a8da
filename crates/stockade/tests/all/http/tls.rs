//! TLS: what makes other addresses than loopback possible.

use super::DEVELOPER;
use super::server::Server;
use crate::mcp::rules;
use crate::wall::Who;
use crate::wall::ground::{Ground, finish};

#[test]
fn curl_talks_to_a_server_with_a_certificate_by_its_names_alone() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let directory = ground.base.join("tls");
    ground.directory(&directory);
    let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 \
                -subj /CN=gate.example -addext subjectAltName=DNS:gate.example 2>&1";
    ground.host(&format!("cd {} && {make}", directory.display()));
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    let (certificate, key) = (certificate.to_str().expect("a path"), key.to_str().expect("a path"));
    // Every address of this machine.
    let server = Server::at(&ground, "0.0.0.0:0", &["--tls-cert", certificate, "--tls-key", key]);
    assert!(server.said.contains("https://0.0.0.0:"), "{}", server.said);
    let port = server.port;
    let curl = |name: &str, more: &str| {
        let script = format!(
            "curl -sS --noproxy '*' --cacert {certificate} --resolve '*:{port}:127.0.0.1' -w '\\n%{{http_code}}' {more} https://{name}:{port}/metrics 2>&1 || true"
        );
        finish(ground.outside("bash").args(["-c", &script])).stdout
    };
    let bearer = format!("-H 'Authorization: Bearer {}'", server.token);
    assert!(curl("gate.example", &bearer).ends_with("\n200"), "{}", curl("gate.example", &bearer));
    assert!(curl("gate.example", "").ends_with("\n401"));
    assert!(curl("gate.example", &format!("{bearer} -H 'Host: evil.example:{port}'")).ends_with("\n403"));
    assert!(curl("evil.example", &bearer).contains("SSL"), "curl itself sees that the name is another");
    assert!(curl("evil.example", &format!("{bearer} --insecure")).ends_with("\n403"), "and the server does where curl does not look");
    let plain = server.raw(format!("GET /healthz HTTP/1.1\r\nHost: gate.example:{port}\r\n\r\n").as_bytes());
    assert!(!plain.contains("HTTP/1.1 200"), "{plain}");
}
