//! `stockade secret adopt`: logins as tools leave them, a registry on loopback that knows one token, and files that nobody should trust.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::VALUE;
use crate::Outcome;
use crate::approvals::{PASSPHRASE, set_credential, with_passphrase};
use crate::wall::ground::{PATH, finish};
use crate::wall::{Ground, as_both};

const OTHER: &str = "npm_zY9xW8vU7tS6rQ5pO4nM3lK2jI1hG0fE9dC8";

/// A registry that says who one is with the right token, and who not with any other; to who signs as AWS's tools do, with the right key. With a
/// certificate it speaks TLS. Its port is the first thing that it prints.
const REGISTRY: &str = r#"
import base64, hashlib, hmac, re, ssl, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
good = ["Bearer " + sys.argv[1], "Basic " + base64.b64encode(("ann:" + sys.argv[1]).encode()).decode()]
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.path in ["/-/whoami", "/v2/", "/api/v3/user", "/version"]
        status = 404 if not known else 200 if self.headers.get("Authorization") in good else 401
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
    # Whether a request of the service STS is signed with the key.
    def is_signed(self, body):
        form = r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d+)/([\w-]+)/sts/aws4_request, SignedHeaders=([\w;-]+), Signature=(\w+)"
        found = re.fullmatch(form, self.headers.get("Authorization", ""))
        if not found:
            return False
        _, day, region, names, signature = found.groups()
        digest = lambda data: hashlib.sha256(data).hexdigest()
        sign = lambda key, text: hmac.new(key, text.encode(), hashlib.sha256).digest()
        lines = "".join(f"{name}:{self.headers[name].strip()}\n" for name in names.split(";"))
        canonical = "\n".join(["POST", self.path, "", lines, names, digest(body)])
        scope = f"{day}/{region}/sts/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, digest(canonical.encode())])
        key = ("AWS4" + sys.argv[1]).encode()
        for part in [day, region, "sts", "aws4_request"]:
            key = sign(key, part)
        return sign(key, text).hex() == signature
    # A token endpoint: refuses a refresh token, or is busy.
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/":
            self.send_response(200 if self.is_signed(body) and b"Action=GetCallerIdentity" in body else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        said = b'{"error": "invalid_grant"}'
        self.send_response(429 if self.path == "/busy" else 400)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

struct Registry {
    child: Child,
    port: u16,
}

impl Registry {
    fn start(ground: &Ground) -> Self {
        Self::with(ground, &[])
    }

    /// One that speaks TLS; and the authority that its certificate is of.
    fn with_tls(ground: &Ground) -> (Self, String) {
        let directory = ground.base.join("tls");
        ground.directory(&directory);
        ground.host(&format!(
            "cd '{}'; new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test'; exec 2>/dev/null
             openssl req -x509 $new -days 2 -keyout ca.key -out ca.pem && openssl req $new -keyout key -out request &&
             echo subjectAltName=IP:127.0.0.1 > names && openssl x509 -req -in request -CA ca.pem -CAkey ca.key -days 2 -extfile names -out pem",
            directory.display()
        ));
        let [certificate, key] = ["pem", "key"].map(|name| directory.join(name).display().to_string());
        let authority = std::fs::read_to_string(directory.join("ca.pem")).expect("an authority");
        (Self::with(ground, &[&certificate, &key]), authority)
    }

    fn with(ground: &Ground, words: &[&str]) -> Self {
        let mut command = ground.outside("/usr/bin/python3");
        let mut child =
            command.args(["-c", REGISTRY, VALUE]).args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a port");
        Self { child, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `secret adopt` with the person's own programs found first.
fn adopt(ground: &Ground, words: &[&str]) -> Outcome {
    adopt_with(ground, &[], words)
}

/// The same with variables.
fn adopt_with(ground: &Ground, variables: &[(&str, &str)], words: &[&str]) -> Outcome {
    let mut command = ground.stockade(["secret", "adopt"].iter().chain(words));
    finish(command.env("PATH", format!("{}:{PATH}", ground.home.join("bin").display())).envs(variables.iter().copied()))
}

fn adopt_json(ground: &Ground, words: &[&str]) -> (Option<i32>, Value) {
    adopt_json_with(ground, &[], words)
}

fn adopt_json_with(ground: &Ground, variables: &[(&str, &str)], words: &[&str]) -> (Option<i32>, Value) {
    let outcome = adopt_with(ground, variables, &[words, &["--json"]].concat());
    let told = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    assert_hidden(&[&outcome.stdout, &outcome.stderr]);
    (outcome.code, told)
}

/// Refused, in words, without a value and without anything kept.
fn refused(ground: &Ground, words: &[&str], says: &str) {
    let outcome = adopt(ground, words);
    assert_eq!(outcome.code, Some(125), "{words:?}: {outcome:?}");
    assert!(outcome.stderr.contains(says), "{words:?}: {says:?} is not in {outcome:?}");
    assert_hidden(&[&outcome.stdout, &outcome.stderr]);
    assert!(!ground.state.join("stockade/secrets").exists() && !settings_path(ground).exists(), "{words:?}: nothing is written");
}

fn settings_path(ground: &Ground) -> PathBuf {
    ground.home.join(".config/stockade/settings.json")
}

/// The entry of a secret as the settings have it.
fn entry(ground: &Ground, name: &str) -> Value {
    let outcome = finish(&mut ground.stockade(["config", "get", "secrets", "--json"]));
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    told["value"][name].clone()
}

fn shows(bytes: &[u8]) -> bool {
    [VALUE, OTHER].iter().any(|value| value.as_bytes()[4..].windows(8).any(|run| bytes.windows(8).any(|window| window == run)))
}

fn assert_hidden(texts: &[&str]) {
    for text in texts {
        assert!(!shows(text.as_bytes()), "{text}");
    }
}

/// Neither what Stockade remembers (receipts, the store) nor its settings show a value.
fn assert_nowhere(ground: &Ground) {
    let mut directories = vec![ground.state.clone(), ground.home.join(".config/stockade")];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                files += 1;
                assert!(!shows(&std::fs::read(entry.path()).unwrap_or_default()), "{}", entry.path().display());
            }
        }
    }
    assert!(files > 2, "nothing was looked at");
}

#[test]
fn adopting_npm_keeps_the_token_writes_the_entry_and_sees_that_it_works() {
    as_both(|ground| {
        let registry = Registry::start(ground);
        let host = format!("127.0.0.1:{}", registry.port);
        let npmrc = ground.home.join(".npmrc");
        let written = format!("; mine\nfund=false\n//{host}/:_authToken={VALUE}\n");
        ground.plant(&npmrc, &written, 0o600);
        let before = "{\n  // what I said\n  \"secrets\": {\n    \"MINE\": { \"source\": \"env\" } // stays\n  }\n}\n";
        let (code, told) = adopt_json(ground, &["npm", "--dry-run"]);
        assert_eq!((code, &told["dry_run"], &told["secret"], &told["hosts"]), (Some(0), &json!(true), &json!("NPM_TOKEN"), &json!([host])));
        assert!(!settings_path(ground).exists() && !ground.state.join("stockade/secrets").exists(), "a dry run writes nothing");
        ground.plant(&settings_path(ground), before, 0o600);
        let outcome = adopt(ground, &["npm"]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stdout.contains("works: the server answers 200") && outcome.stdout.contains("~/.npmrc line 3"), "{outcome:?}");
        assert!(outcome.stdout.contains("may now be deleted: line 3 of ~/.npmrc"), "{outcome:?}");
        assert_hidden(&[&outcome.stdout, &outcome.stderr]);
        assert_eq!(std::fs::read_to_string(&npmrc).expect("it is there"), written, "nothing is deleted");
        assert_eq!(entry(ground, "NPM_TOKEN"), json!({"source": "store", "hosts": [host], "delivery": ["variable", "npm"]}));
        let after = std::fs::read_to_string(settings_path(ground)).expect("settings");
        assert!(after.starts_with("{\n  // what I said\n  \"secrets\": {\n    \"MINE\": { \"source\": \"env\" }, // stays\n"), "{after}");
        assert_nowhere(ground);
        let receipts = finish(&mut ground.stockade(["receipts", "list", "--json"])).stdout;
        assert!(receipts.contains("stockade.secret.adopt"), "{receipts}");
        // What is there is not lost by accident.
        let again = adopt(ground, &["npm"]);
        assert!(again.code == Some(125) && again.stderr.contains("already") && again.stderr.contains("--replace"), "{again:?}");
        assert_eq!(std::fs::read_to_string(settings_path(ground)).expect("settings"), after);
        // A token that the registry does not know is kept, and said to be of no use.
        ground.plant(&npmrc, &written.replace(VALUE, OTHER), 0o600);
        let (code, told) = adopt_json(ground, &["npm", "--replace"]);
        assert_eq!((code, &told["check"]["works"], &told["may_be_deleted"]), (Some(1), &json!(false), &json!([])), "{told}");
        assert_eq!(told["check"]["said"], "the server answers 401");
        let outcome = adopt(ground, &["npm", "--replace"]);
        assert!(outcome.code == Some(1) && outcome.stderr.contains("does not work; delete nothing"), "{outcome:?}");
        // A registry that is not there says nothing about the token.
        drop(registry);
        let (code, told) = adopt_json(ground, &["npm", "--replace"]);
        assert_eq!((code, &told["check"]["works"]), (Some(0), &json!(null)), "{told}");
        assert_eq!(told["check"]["said"], "the server cannot be reached");
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_npm_says_which_registry_it_wants_and_expands_nothing() {
    as_both(|ground| {
        let npmrc = ground.home.join(".npmrc");
        refused(ground, &["npm"], "not logged in");
        ground.plant(&npmrc, &format!("//a.example/:_authToken={VALUE}\n//b.example/npm/:_authToken={OTHER}\n"), 0o600);
        refused(ground, &["npm"], "`a.example`, `b.example/npm`");
        refused(ground, &["npm", "--host", "c.example"], "no login for `c.example`");
        refused(ground, &["npm", "--profile", "x"], "`--profile` means nothing");
        refused(ground, &["npm", "--name", "a-b"], "named like an environment variable");
        ground.plant(&npmrc, "//a.example/:_authToken=${NPM_TOKEN}\n", 0o600);
        refused(ground, &["npm"], "names a variable");
        ground.plant(&npmrc, "//a.example/:_authToken=short\n", 0o600);
        refused(ground, &["npm"], "shorter than 16 bytes");
    });
}

#[test]
fn adopting_docker_takes_what_is_in_the_file_or_asks_the_helper() {
    as_both(|ground| {
        let registry = Registry::start(ground);
        let host = format!("127.0.0.1:{}", registry.port);
        let auth = base64(&format!("ann:{VALUE}"));
        let file = json!({"auths": {host.clone(): {"auth": auth}, "https://index.docker.io/v1/": {}}, "credsStore": "vault"}).to_string();
        let path = ground.home.join(".docker/config.json");
        ground.plant(&path, &file, 0o600);
        refused(ground, &["docker"], "there are several");
        let (code, told) = adopt_json(ground, &["docker", "--host", &host]);
        assert_eq!((code, &told["check"]["works"]), (Some(0), &json!(true)), "{told}");
        let expected = json!({"source": "store", "hosts": [host], "delivery": ["variable", "docker"], "user": "ann"});
        assert_eq!(entry(ground, "DOCKER_TOKEN"), expected);
        let helper = format!(
            "#!/bin/sh\nread server\n[ \"$1 $server\" = 'get https://index.docker.io/v1/' ] && echo '{{\"Username\":\"<token>\",\"Secret\":\"{OTHER}\"}}'\n"
        );
        ground.plant(&ground.home.join("bin/docker-credential-vault"), &helper, 0o755);
        let (code, told) = adopt_json(ground, &["docker", "--host", "docker.io", "--name", "HUB"]);
        assert_eq!((code, &told["check"]["works"], &told["from"]), (Some(0), &json!(null), &json!("docker-credential-vault")), "{told}");
        let hub = entry(ground, "HUB");
        assert_eq!(hub["hosts"], json!(["index.docker.io", "auth.docker.io", "registry-1.docker.io"]));
        assert_eq!((&hub["user"], &hub["places"]), (&json!("<token>"), &json!(["body"])));
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), file, "nothing is deleted");
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_gh_reads_the_file_or_asks_for_what_the_keyring_has() {
    as_both(|ground| {
        let path = ground.home.join(".config/gh/hosts.yml");
        refused(ground, &["gh", "--no-check"], "gh auth login");
        ground.plant(
            &path,
            &format!("github.com:\n    users:\n        ann:\n    oauth_token: {VALUE}\n    user: ann\nghe.example:\n    user: ann\n"),
            0o600,
        );
        let (code, told) = adopt_json(ground, &["gh", "--no-check"]);
        assert_eq!((code, &told["check"]), (Some(0), &json!({"works": null, "said": "--no-check"})), "{told}");
        let hosts = json!(["api.github.com", "github.com", "uploads.github.com"]);
        assert_eq!(entry(ground, "GH_TOKEN"), json!({"source": "store", "hosts": hosts, "delivery": ["variable", "git"]}));
        let program = format!("#!/bin/sh\n[ \"$*\" = 'auth token --hostname ghe.example' ] && echo {OTHER}\n");
        ground.plant(&ground.home.join("bin/gh"), &program, 0o755);
        let (code, told) = adopt_json(ground, &["gh", "--host", "ghe.example", "--no-check"]);
        assert_eq!((code, &told["secret"], &told["from"]), (Some(0), &json!("GH_ENTERPRISE_TOKEN"), &json!("gh auth token")), "{told}");
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_gh_sees_that_it_works_at_a_server_of_ones_own() {
    as_both(|ground| {
        let registry = Registry::start(ground);
        let host = format!("127.0.0.1:{}", registry.port);
        let path = ground.home.join(".config/gh/hosts.yml");
        let written = format!("github.com:\n    oauth_token: {OTHER}\n{host}:\n    oauth_token: {VALUE}\n    user: ann\n");
        ground.plant(&path, &written, 0o600);
        let (code, told) = adopt_json_with(ground, &[("GH_HOST", &host)], &["gh"]);
        assert_eq!((code, &told["check"]["works"], &told["hosts"]), (Some(0), &json!(true), &json!([host])), "{told}");
        assert_eq!((&told["secret"], &told["from"]), (&json!("GH_ENTERPRISE_TOKEN"), &json!("~/.config/gh/hosts.yml line 4")), "{told}");
        ground.plant(&path, &written.replace(VALUE, OTHER), 0o600);
        let (code, told) = adopt_json(ground, &["gh", "--host", &host, "--replace"]);
        assert_eq!((code, &told["check"]["said"]), (Some(1), &json!("the server answers 401")), "{told}");
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_aws_asks_where_the_tools_of_aws_would_and_never_in_the_clear() {
    as_both(|ground| {
        let registry = Registry::start(ground);
        let (host, url) = (format!("127.0.0.1:{}", registry.port), format!("http://127.0.0.1:{}", registry.port));
        let credentials = |key: &str| format!("[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = {key}\n");
        let files = |key: &str, endpoint: &str| {
            ground.plant(&ground.home.join(".aws/credentials"), &credentials(key), 0o600);
            ground.plant(&ground.home.join(".aws/config"), &format!("[default]\nregion = eu-central-1\n{endpoint}"), 0o600);
        };
        files(VALUE, "endpoint_url = http://sts.example\n");
        refused(ground, &["aws"], "keys are not shown there");
        files(VALUE, "");
        let outcome = adopt_with(ground, &[("AWS_ENDPOINT_URL_STS", "https://a@evil.example")], &["aws"]);
        assert!(outcome.code == Some(125) && outcome.stderr.contains("`AWS_ENDPOINT_URL_STS` is"), "{outcome:?}");
        let (code, told) = adopt_json_with(ground, &[("AWS_ENDPOINT_URL_STS", &url), ("AWS_ENDPOINT_URL", "http://no.example")], &["aws"]);
        assert_eq!((code, &told["check"]["works"]), (Some(0), &json!(true)), "{told}");
        assert_eq!(told["hosts"], json!(["*.amazonaws.com", host]), "{told}");
        for (key, code, said) in [(VALUE, 0, 200), (OTHER, 1, 403)] {
            files(key, &format!("endpoint_url = {url}/\n"));
            let (ended, told) = adopt_json(ground, &["aws", "--replace"]);
            assert_eq!((ended, &told["check"]["said"]), (Some(code), &json!(format!("the server answers {said}"))), "{told}");
        }
        // As somebody who wants none of it.
        let ignored = [("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")];
        let (_, told) = adopt_json_with(ground, &ignored, &["aws", "--replace", "--no-check"]);
        assert_eq!(told["hosts"], json!(["*.amazonaws.com"]), "{told}");
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_kube_sees_that_it_works_at_a_server_with_authorities_of_its_own() {
    as_both(|ground| {
        let (registry, pem) = Registry::with_tls(ground);
        let server = format!("https://127.0.0.1:{}", registry.port);
        let program = |token: &str, pem: &str| {
            let cluster = json!({"server": server, "certificate-authority-data": base64(pem)});
            let text = json!({"current-context": "c", "users": [{"name": "u", "user": {"token": token}}],
                "clusters": [{"name": "k", "cluster": cluster}]});
            ground.plant(&ground.home.join("bin/kubectl"), &format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n"), 0o755);
        };
        program(VALUE, &pem);
        let (code, told) = adopt_json(ground, &["kube"]);
        assert_eq!((code, &told["check"]["works"]), (Some(0), &json!(true)), "{told}");
        program(OTHER, &pem);
        let (code, told) = adopt_json(ground, &["kube", "--replace"]);
        assert_eq!((code, &told["check"]["said"]), (Some(1), &json!("the server answers 401")), "{told}");
        // A server that others vouch for is told nothing, and says nothing of the token.
        let (_other, elsewhere) = Registry::with_tls(ground);
        program(VALUE, &elsewhere);
        let (code, told) = adopt_json(ground, &["kube", "--replace"]);
        assert_eq!((code, &told["check"]["works"]), (Some(0), &Value::Null), "{told}");
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_aws_keeps_keys_as_one_secret_and_those_of_a_role_as_two() {
    as_both(|ground| {
        let credentials = format!("[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = {VALUE}\n");
        ground.plant(&ground.home.join(".aws/credentials"), &credentials, 0o600);
        let config = "[default]\nregion = eu-central-1\n[profile ops]\nrole_arn = arn:aws:iam::123456789012:role/ops\nsource_profile = default\nregion = eu-west-1\n";
        ground.plant(&ground.home.join(".aws/config"), config, 0o600);
        refused(ground, &["aws", "--profile", "other"], "`other` is not used");
        let (code, told) = adopt_json(ground, &["aws", "--no-check"]);
        assert_eq!((code, &told["kept"]), (Some(0), &json!(["AWS"])), "{told}");
        assert_eq!(entry(ground, "AWS"), json!({"source": "store", "hosts": ["*.amazonaws.com"], "delivery": "aws-keys"}));
        let (code, told) = adopt_json(ground, &["aws", "--profile", "ops", "--name", "OPS", "--no-check"]);
        assert_eq!((code, &told["kept"]), (Some(0), &json!(["OPS_ACCESS_KEY_ID_KEPT", "OPS_SECRET_ACCESS_KEY_KEPT"])), "{told}");
        let expected = json!({
            "source": "aws", "role": "arn:aws:iam::123456789012:role/ops", "accessKeyId": "OPS_ACCESS_KEY_ID_KEPT",
            "secretAccessKey": "OPS_SECRET_ACCESS_KEY_KEPT", "region": "eu-west-1", "hosts": ["*.amazonaws.com"],
        });
        assert_eq!(entry(ground, "OPS"), expected);
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_gcloud_keeps_the_key_and_writes_the_provider() {
    as_both(|ground| {
        let path = ground.home.join(".config/gcloud/application_default_credentials.json");
        ground.plant(&path, "{\"type\": \"external_account\"}", 0o600);
        refused(ground, &["gcloud"], "another program has a token");
        let key = json!({"type": "service_account", "project_id": "p-1", "client_email": "a@p-1.iam.gserviceaccount.com",
            "private_key": format!("-----BEGIN PRIVATE KEY-----\n{VALUE}\n-----END PRIVATE KEY-----\n")});
        ground.plant(&path, &serde_json::to_string_pretty(&key).expect("JSON"), 0o600);
        let (code, told) = adopt_json(ground, &["gcloud", "--no-check"]);
        assert_eq!((code, &told["secret"], &told["kept"]), (Some(0), &json!("GCP"), &json!(["GCP_KEY"])), "{told}");
        assert_eq!(entry(ground, "GCP"), json!({"source": "gcp", "key": "GCP_KEY", "project": "p-1", "hosts": ["*.googleapis.com"]}));
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_gcloud_tells_a_login_that_is_refused_from_a_provider_that_is_busy() {
    as_both(|ground| {
        let registry = Registry::start(ground);
        let path = ground.home.join(".config/gcloud/application_default_credentials.json");
        for (page, works, says) in [("token", json!(false), "400: invalid_grant"), ("busy", Value::Null, "429: invalid_grant")] {
            let key = json!({"type": "authorized_user", "client_id": "c", "client_secret": OTHER, "refresh_token": VALUE,
                "token_uri": format!("http://127.0.0.1:{}/{page}", registry.port)});
            ground.plant(&path, &key.to_string(), 0o600);
            let (_, told) = adopt_json(ground, &["gcloud", "--replace"]);
            assert_eq!(told["check"]["works"], works, "{told}");
            assert!(told["check"]["said"].as_str().is_some_and(|said| said.contains(says)), "{told}");
        }
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_kube_keeps_a_token_and_its_servers_authorities() {
    as_both(|ground| {
        let pem = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        let cluster = json!({"server": "https://k.example:6443", "certificate-authority-data": base64(pem)});
        let program = |user: Value| {
            let text =
                json!({"current-context": "c", "users": [{"name": "u", "user": user}], "clusters": [{"name": "k", "cluster": cluster}]});
            ground.plant(&ground.home.join("bin/kubectl"), &format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n"), 0o755);
        };
        program(json!({"exec": {"command": "aws"}}));
        refused(ground, &["kube"], "another program logs in for it");
        program(json!({"client-certificate-data": "x", "client-key-data": "y"}));
        refused(ground, &["kube"], "kubectl create token");
        program(json!({"token": VALUE}));
        let (code, told) = adopt_json(ground, &["kube", "--no-check"]);
        assert_eq!((code, &told["secret"]), (Some(0), &json!("KUBE_TOKEN")), "{told}");
        let file = ground.home.join(".config/stockade/authorities/KUBE_TOKEN.pem");
        let expected = json!({"source": "store", "hosts": ["k.example:6443"], "delivery": ["variable", "kubernetes"], "authorities": file});
        assert_eq!(entry(ground, "KUBE_TOKEN"), expected);
        assert_eq!(std::fs::read_to_string(&file).expect("written"), pem);
        assert_eq!(std::fs::metadata(&file).expect("metadata").mode() & 0o7777, 0o600);
        assert_nowhere(ground);
    });
}

#[test]
fn adopting_trusts_no_file_that_others_may_write_and_none_that_is_no_text() {
    as_both(|ground| {
        let npmrc = ground.home.join(".npmrc");
        let line = format!("//a.example/:_authToken={VALUE}\n");
        for mode in [0o666, 0o620] {
            ground.plant(&npmrc, &line, mode);
            refused(ground, &["npm"], "others may write to it");
            // As it is, for a shell to read: `~` in quotes is no home.
            refused(ground, &["npm"], &format!("chmod go-w '{}'", npmrc.display()));
        }
        ground.plant(&npmrc, &format!("{line}{}", "#".repeat(1 << 20)), 0o600);
        refused(ground, &["npm"], "larger than 1 MiB");
        ground.plant(&npmrc, &format!("{line}\0"), 0o600);
        refused(ground, &["npm"], "not text");
        std::fs::write(&npmrc, b"\xff\xfe\x00").expect("written");
        refused(ground, &["npm"], "not text");
        std::fs::remove_file(&npmrc).expect("removed");
        ground.directory(&npmrc);
        refused(ground, &["npm"], "not a plain file");
        std::fs::remove_dir(&npmrc).expect("removed");
        ground.host(&format!("mkfifo '{}'", npmrc.display()));
        refused(ground, &["npm"], "not a plain file");
        std::fs::remove_file(&npmrc).expect("removed");
        for (file, tool) in [(".docker/config.json", "docker"), (".config/gcloud/application_default_credentials.json", "gcloud")] {
            ground.plant(&ground.home.join(file), &format!("{{\"a\": \"{VALUE}\", nonsense"), 0o600);
            refused(ground, &[tool], "it is not JSON");
        }
        ground.plant(&ground.home.join(".aws/credentials"), &format!("{VALUE}\n"), 0o600);
        refused(ground, &["aws"], "line 1 is not what `aws` writes");
        // Dotfiles are often links.
        ground.plant(&ground.home.join("dotfiles/npmrc"), &line, 0o600);
        symlink(Path::new("dotfiles/npmrc"), &npmrc).expect("linked");
        let (code, told) = adopt_json(ground, &["npm", "--no-check"]);
        assert_eq!((code, &told["secret"]), (Some(0), &json!("NPM_TOKEN")), "{told}");
    });
}

#[test]
fn adopting_needs_the_approver_where_there_is_one() {
    as_both(|ground| {
        ground.plant(&ground.home.join(".npmrc"), &format!("//a.example/:_authToken={VALUE}\n"), 0o600);
        set_credential(ground);
        refused(ground, &["npm", "--no-check"], "passphrase");
        let dry = adopt(ground, &["npm", "--dry-run"]);
        assert_eq!(dry.code, Some(0), "{dry:?}");
        let wrong = with_passphrase(ground, "wrong horse battery", &["secret", "adopt", "npm", "--no-check"]);
        assert!(wrong.code == Some(125) && !settings_path(ground).exists(), "{wrong:?}");
        let adopted = with_passphrase(ground, PASSPHRASE, &["secret", "adopt", "npm", "--no-check"]);
        assert!(adopted.code == Some(0) && adopted.stdout.contains("may be deleted once it works: line 1 of ~/.npmrc"), "{adopted:?}");
        assert_nowhere(ground);
    });
}

fn base64(text: &str) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}
