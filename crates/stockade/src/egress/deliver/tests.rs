//! What each delivery comes to, whole.

use serde_json::{Value, json};

use super::*;

const COUNTER: Counter<'static> = Counter { proxy_port: 61080, token: "TOKEN" };

fn given(name: &str, hosts: &[&str], deliveries: &[Delivery]) -> Given {
    Given {
        name: name.parse().unwrap(),
        placeholder: format!("placeholder-of-{name}"),
        hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
        deliveries: deliveries.to_vec(),
        user: None,
        kubernetes: None,
        gcp: None,
        logins: None,
        ssh: None,
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, OsString)> {
    let mut variables: Vec<(String, OsString)> = pairs.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
    variables.sort();
    variables
}

fn of(given: &[Given]) -> Delivered {
    deliver(given, COUNTER).unwrap()
}

fn refusal(given: &[Given]) -> String {
    deliver(given, COUNTER).unwrap_err().message
}

const DESK_AT: (&str, &str) = ("STOCKADE_DESK", "http://127.0.0.1:61080/TOKEN");

#[test]
fn a_variable_holds_the_placeholder_and_needs_no_desk() {
    assert_eq!(of(&[]), Delivered::default());
    let delivered = of(&[given("A", &["a.example"], &[Delivery::Variable]), given("B", &["b.example"], &[Delivery::Variable])]);
    let environment = variables(&[("A", "placeholder-of-A"), ("B", "placeholder-of-B")]);
    assert_eq!(delivered, Delivered { environment, ..Delivered::default() });
}

#[test]
fn git_asks_the_tool_and_nobody_else() {
    let mut one = given("A", &["github.com", "127.0.0.1:3000"], &[Delivery::Git]);
    let helper = "/run/stockade/bin/stockade-credential git A";
    let delivered = of(&[one.clone()]);
    let mut expected = vec![("GIT_CONFIG_COUNT".to_owned(), "12".to_owned())];
    let mut number = 0;
    for url in ["https://github.com", "https://127.0.0.1:3000", "http://127.0.0.1:3000"] {
        for (key, value) in [("helper", ""), ("helper", helper), ("useHttpPath", "true"), ("username", "x-access-token")] {
            expected.push((format!("GIT_CONFIG_KEY_{number}"), format!("credential.{url}.{key}")));
            expected.push((format!("GIT_CONFIG_VALUE_{number}"), value.to_owned()));
            number += 1;
        }
    }
    expected.push((DESK_AT.0.to_owned(), DESK_AT.1.to_owned()));
    let pairs: Vec<(&str, &str)> = expected.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        delivered,
        Delivered {
            environment: variables(&pairs),
            programs: vec!["/run/stockade/bin/stockade-credential".into()],
            desk: vec![(0, DeskKind::Git { user: "x-access-token".into() })],
            ..Delivered::default()
        }
    );
    one.user = Some("me".into());
    assert_eq!(of(&[one]).desk, [(0, DeskKind::Git { user: "me".into() })]);
}

#[test]
fn secrets_of_one_host_are_asked_for_in_turn() {
    let delivered = of(&[given("A", &["github.com"], &[Delivery::Git]), given("B", &["github.com"], &[Delivery::Git])]);
    let values: Vec<&str> = (0..5)
        .map(|number| {
            let name = format!("GIT_CONFIG_VALUE_{number}");
            delivered.environment.iter().find(|(known, _)| *known == name).unwrap().1.to_str().unwrap()
        })
        .collect();
    let tool = "/run/stockade/bin/stockade-credential git";
    assert_eq!(values, ["", &format!("{tool} A"), &format!("{tool} B"), "true", "x-access-token"]);
    assert_eq!(delivered.programs.len(), 1);
}

#[test]
fn package_managers_have_the_placeholder_where_they_look() {
    let npm = of(&[given("N", &["registry.npmjs.org", "127.0.0.1:4873", "*.example"], &[Delivery::Npm])]);
    let tokens = ["npm_config_//127.0.0.1:4873/:_authToken", "npm_config_//registry.npmjs.org/:_authToken"];
    assert_eq!(npm.environment, variables(&tokens.map(|name| (name, "placeholder-of-N"))));
    let index = "https://__token__:placeholder-of-P@pypi.example/simple/";
    let pip = of(&[given("P", &["pypi.example"], &[Delivery::Pip])]);
    assert_eq!(pip.environment, variables(&[("PIP_INDEX_URL", index), ("UV_DEFAULT_INDEX", index)]));
    assert!(refusal(&[given("P", &["*.example"], &[Delivery::Pip])]).contains("pip needs a host"));
    let cargo = of(&[given("C", &["crates.io"], &[Delivery::Cargo])]);
    assert_eq!(cargo.environment, variables(&[("CARGO_REGISTRY_TOKEN", "placeholder-of-C")]));
}

#[test]
fn docker_is_told_of_its_helper() {
    let delivered = of(&[given("D", &["ghcr.io", "docker.io", "auth.docker.io", "127.0.0.1:5000", "*.gcr.io"], &[Delivery::Docker])]);
    let (place, text) = delivered.files.first().unwrap();
    let configuration: Value = serde_json::from_slice(text).unwrap();
    assert_eq!(place, Path::new("/run/stockade/docker/config.json"));
    assert_eq!(
        configuration,
        json!({ "credHelpers": { "ghcr.io": "stockade", "https://index.docker.io/v1/": "stockade", "127.0.0.1:5000": "stockade" } })
    );
    assert_eq!(
        Delivered { files: Vec::new(), ..delivered },
        Delivered {
            environment: variables(&[("DOCKER_CONFIG", "/run/stockade/docker"), ("STOCKADE_DESK_DOCKER", "D"), DESK_AT]),
            path_prefix: Some("/run/stockade/bin".into()),
            programs: vec!["/run/stockade/bin/docker-credential-stockade".into()],
            desk: vec![(0, DeskKind::Docker { user: "x-access-token".into() })],
            ..Delivered::default()
        }
    );
    let two = [given("D", &["ghcr.io"], &[Delivery::Docker]), given("E", &["quay.io"], &[Delivery::Docker])];
    assert!(refusal(&two).contains("one secret for docker"));
    assert!(refusal(&[given("D", &["*.gcr.io"], &[Delivery::Docker])]).contains("without `*`"));
}

#[test]
fn each_cluster_has_a_configuration_without_secrets() {
    let cluster = |name: &str, namespace: Option<&str>| {
        let mut one = given(name, &["k.example"], &[Delivery::Kubernetes]);
        one.kubernetes = Some(Cluster { server: "https://k.example:6443".into(), namespace: namespace.map(str::to_owned) });
        one
    };
    let delivered = of(&[cluster("K", Some("team")), cluster("L", None)]);
    let expected = |name: &str, context: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": name, "cluster": {
                "server": "https://k.example:6443", "certificate-authority": "/run/stockade/authorities.pem" } }],
            "users": [{ "name": name, "user": { "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": "/run/stockade/bin/stockade-credential",
                "args": ["kubernetes", name],
                "interactiveMode": "Never",
                "provideClusterInfo": false,
            } } }],
            "contexts": [{ "name": name, "context": context }],
            "current-context": name,
        })
    };
    let files: Vec<(PathBuf, Value)> =
        delivered.files.iter().map(|(place, text)| (place.clone(), serde_json::from_slice(text).unwrap())).collect();
    assert_eq!(
        files,
        [
            ("/run/stockade/kube/K.yaml".into(), expected("K", json!({ "cluster": "K", "user": "K", "namespace": "team" }))),
            ("/run/stockade/kube/L.yaml".into(), expected("L", json!({ "cluster": "L", "user": "L" }))),
        ]
    );
    assert_eq!(
        Delivered { files: Vec::new(), ..delivered },
        Delivered {
            environment: variables(&[("KUBECONFIG", "/run/stockade/kube/K.yaml:/run/stockade/kube/L.yaml"), DESK_AT]),
            programs: vec!["/run/stockade/bin/stockade-credential".into()],
            desk: vec![(0, DeskKind::Kubernetes), (1, DeskKind::Kubernetes)],
            ..Delivered::default()
        }
    );
    assert!(refusal(&[given("K", &["k.example"], &[Delivery::Kubernetes])]).contains("cluster's server"));
}

#[test]
fn aws_has_an_endpoint_or_made_up_keys() {
    assert_eq!(
        of(&[given("W", &["*.amazonaws.com"], &[Delivery::AwsEndpoint])]),
        Delivered {
            environment: variables(&[
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:61080/aws/W"),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "TOKEN"),
                ("AWS_EC2_METADATA_DISABLED", "true"),
                DESK_AT,
            ]),
            desk: vec![(0, DeskKind::AwsEndpoint)],
            ..Delivered::default()
        }
    );
    assert_eq!(MADE_UP_KEY.len(), 40);
    assert_eq!(
        of(&[given("W", &["*.amazonaws.com"], &[Delivery::AwsKeys])]),
        Delivered {
            environment: variables(&[
                ("AWS_ACCESS_KEY_ID", "placeholder-of-W"),
                ("AWS_SECRET_ACCESS_KEY", MADE_UP_KEY),
                ("AWS_EC2_METADATA_DISABLED", "true"),
            ]),
            ..Delivered::default()
        }
    );
    let kinds = [Delivery::AwsEndpoint, Delivery::AwsKeys];
    for (one, two) in kinds.iter().flat_map(|one| kinds.iter().map(move |two| (*one, *two))) {
        let both = [given("V", &["*.amazonaws.com"], &[one]), given("W", &["*.amazonaws.com"], &[two])];
        assert!(refusal(&both).contains("one "), "{one:?} {two:?}");
    }
}

#[test]
fn google_has_a_metadata_server_or_a_file() {
    let mut one = given("G", &["*.googleapis.com"], &[Delivery::GcpMetadata]);
    let server = "127.0.0.1:61080";
    let metadata = [("GCE_METADATA_HOST", server), ("GCE_METADATA_IP", server), ("GCE_METADATA_ROOT", server), DESK_AT];
    let nobody = DeskKind::GcpMetadata { project: None, email: None, scopes: Vec::new() };
    let expected = Delivered { environment: variables(&metadata), desk: vec![(0, nobody)], ..Delivered::default() };
    assert_eq!(of(&[one.clone()]), expected);
    let scopes = vec!["https://www.googleapis.com/auth/cloud-platform".to_owned()];
    one.gcp = Some(Account { project: Some("p".into()), email: Some("a@b".into()), scopes: scopes.clone() });
    let project = [("GOOGLE_CLOUD_PROJECT", "p"), ("CLOUDSDK_CORE_PROJECT", "p")];
    let somebody = DeskKind::GcpMetadata { project: Some("p".into()), email: Some("a@b".into()), scopes };
    let environment = variables(&[&metadata[..], &project[..]].concat());
    assert_eq!(of(&[one.clone()]), Delivered { environment, desk: vec![(0, somebody)], ..Delivered::default() });
    assert!(refusal(&[one.clone(), Given { name: "H".parse().unwrap(), ..one.clone() }]).contains("one metadata server"));
    one.deliveries = vec![Delivery::GcpToken];
    let token = ("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "/run/stockade/gcp/G.token");
    assert_eq!(
        of(&[one]),
        Delivered {
            environment: variables(&[&[token][..], &project[..]].concat()),
            files: vec![("/run/stockade/gcp/G.token".into(), b"placeholder-of-G".to_vec())],
            ..Delivered::default()
        }
    );
}

#[test]
fn git_has_the_tool_for_ssh_and_nothing_of_a_key() {
    let one = |name: &str| {
        let ssh = SshUse { user: "git".into(), host_keys: vec!["k".into()], repositories: vec!["org/*".parse().unwrap()], push: false };
        Given { ssh: Some(ssh), ..given(name, &["github.com:22"], &[Delivery::Ssh]) }
    };
    let (first, second) = (one("A"), one("B"));
    let tool = ("GIT_SSH_COMMAND", "/run/stockade/bin/stockade-ssh");
    let kinds = [&first, &second].map(|one| DeskKind::Ssh(one.ssh.clone().unwrap()));
    assert_eq!(
        of(&[first.clone(), second.clone()]),
        Delivered {
            environment: variables(&[tool, ("GIT_SSH_VARIANT", "ssh"), DESK_AT]),
            programs: vec!["/run/stockade/bin/stockade-ssh".into()],
            desk: kinds.into_iter().enumerate().collect(),
            ..Delivered::default()
        }
    );
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(refusal(&[given("S", &["github.com:22"], &[Delivery::Ssh])]).contains("no `ssh`"));
    assert!(refusal(&[given("S", &[], &[Delivery::Ssh])]).contains("bound to a host"));
    assert!(refusal(&[given("S", &["github.com:22"], &[Delivery::Ssh, Delivery::Variable])]).contains("only delivery"));
    assert!(refusal(&[given("A", &[], &[Delivery::Git])]).contains("bound to a host"));
    // A variable that something else needs.
    let taken = [given("GIT_CONFIG_COUNT", &["a.example"], &[Delivery::Variable]), given("A", &["a.example"], &[Delivery::Git])];
    assert!(refusal(&taken).contains("`GIT_CONFIG_COUNT` is needed"));
    let twice = [given("AWS_ACCESS_KEY_ID", &["a.example"], &[Delivery::Variable]), given("W", &["a.example"], &[Delivery::AwsKeys])];
    assert!(refusal(&twice).contains("has the variable"));
}

#[test]
fn one_secret_may_appear_in_several_ways() {
    let delivered = of(&[given("A", &["ghcr.io"], &[Delivery::Variable, Delivery::Git, Delivery::Docker])]);
    let tools = ["/run/stockade/bin/stockade-credential", "/run/stockade/bin/docker-credential-stockade"];
    assert_eq!(delivered.programs, tools.map(PathBuf::from));
    assert_eq!(delivered.desk.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 0]);
    assert!(delivered.environment.contains(&("A".to_owned(), "placeholder-of-A".into())));
}

#[test]
fn several_keys_have_one_agent_and_none_is_for_a_host_unseen() {
    let logins = |user: &str| Some(Logins { host_keys: vec!["ssh-ed25519 AQID".into()], user: user.into() });
    let mut keys = [given("K", &["forge.example:22"], &[Delivery::SshAgent]), given("L", &["127.0.0.1:2222"], &[Delivery::SshAgent])];
    keys[0].logins = logins("git");
    keys[1].logins = logins("deploy");
    let key = |secret, user: &str| AgentKey { secret, host_keys: vec![vec![1, 2, 3]], user: user.into() };
    assert_eq!(
        of(&keys),
        Delivered {
            environment: variables(&[("SSH_AUTH_SOCK", "/run/stockade/ssh-agent")]),
            agent: Some("/run/stockade/ssh-agent".into()),
            agent_keys: vec![key(0, "git"), key(1, "deploy")],
            ..Delivered::default()
        }
    );
    assert!(of(&[given("A", &["a.example"], &[Delivery::Variable])]).agent.is_none());
    let refused = |hosts: &[&str], deliveries: &[Delivery], logins: Option<Logins>| {
        let mut one = given("K", hosts, deliveries);
        one.logins = logins;
        refusal(&[one])
    };
    assert!(refused(&["forge.example"], &[Delivery::SshAgent], logins("git")).contains("with a port"));
    assert!(refused(&["forge.example:22"], &[Delivery::Variable, Delivery::SshAgent], logins("git")).contains("no other delivery"));
    assert!(refused(&["forge.example:22"], &[Delivery::SshAgent], None).contains("ssh.hostKeys"));
    let nobody = Some(Logins { host_keys: Vec::new(), user: "git".into() });
    assert!(refused(&["forge.example:22"], &[Delivery::SshAgent], nobody).contains("ssh.hostKeys"));
}
