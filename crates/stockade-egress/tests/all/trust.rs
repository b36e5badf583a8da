//! Authorities that some hosts have of their own.

use std::sync::Arc;

use http::StatusCode;
use stockade_egress::Verdict;

use crate::world::{LOCAL, Outside, World, get, pattern, rules, text};

#[tokio::test]
async fn an_authority_counts_for_its_hosts_and_no_other() {
    let (outside, cluster) = (Arc::new(Outside::new()), Outside::new());
    let (usual, own) = (outside.server(&LOCAL).await, cluster.server(&LOCAL).await);
    let hosts = [format!("api.example:{}", usual.port), format!("api.example:{}", own.port), format!("other.example:{}", own.port)];
    let mut allowed = rules(&hosts);
    allowed.trust = vec![(pattern(&hosts[1]), vec![cluster.certificate.clone()])];
    let mut world = World::new(Arc::clone(&outside), allowed, vec![]).await;
    for (host, status) in
        [(&hosts[0], StatusCode::OK), (&hosts[1], StatusCode::OK), (&hosts[2], StatusCode::BAD_GATEWAY), (&hosts[1], StatusCode::OK)]
    {
        let answer = world.https(host, get(host, "/")).await;
        assert_eq!(answer.status(), status, "{host} {}", text(&answer));
        assert_eq!(world.event().await.verdict, Verdict::Allow);
    }
    let mut sender = world.http2(&hosts[1]).await;
    let answer =
        sender.send_request(http::Request::get(format!("https://{}/", hosts[1])).body(crate::world::full("")).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    // What is trusted besides does not take the place of the rest.
    let mut allowed = rules(&hosts);
    allowed.trust = vec![(pattern(&hosts[0]), vec![cluster.certificate.clone()]), (pattern(&hosts[2]), vec![])];
    let world = World::new(outside, allowed, vec![]).await;
    assert_eq!(world.https(&hosts[0], get(&hosts[0], "/")).await.status(), StatusCode::OK);
    assert_eq!(world.https(&hosts[2], get(&hosts[2], "/")).await.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn what_is_no_certificate_is_not_trusted() {
    let world = World::new(Arc::new(Outside::new()), rules(&[]), vec![]).await;
    let mut wrong = rules(&[]);
    wrong.trust = vec![(pattern("api.example"), vec![vec![1, 2, 3].into()])];
    assert!(world.egress.add(stockade_core::id::SandboxId::from_parts(2_000, 8), wrong, vec![]).is_err());
}
