//! A relay on loopback that shows the token for clients that cannot: everything else passes as it is, but for its own name.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// A relay to a server at a port, which needs this token. Where it listens.
pub(super) async fn relay(port: u16, token: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let own = listener.local_addr().expect("an address");
    let bearer = HeaderValue::try_from(format!("Bearer {token}")).expect("a token");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let bearer = bearer.clone();
            let pass = service_fn(move |request| pass(request, own.port(), port, bearer.clone()));
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), pass).await;
            });
        }
    });
    own
}

/// Each request over a connection of its own, so that who goes away here goes away there.
async fn pass(mut request: Request<Incoming>, own: u16, port: u16, bearer: HeaderValue) -> Result<Response<Incoming>, hyper::Error> {
    let headers = request.headers_mut();
    for name in [HOST, ORIGIN] {
        if let Some(text) = headers.get(&name).and_then(|value| value.to_str().ok()) {
            let text = text.replace(&format!(":{own}"), &format!(":{port}"));
            headers.insert(name, HeaderValue::try_from(text).expect("a value"));
        }
    }
    headers.insert(AUTHORIZATION, bearer);
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}
