//! HTTP clients of languages: each sends a token, and sees in the answer only what it sent.

use super::super::world::bound_flags;
use super::{World, as_both, both_ways, packages, python};

const PYTHON: &str = r#"
import os, sys
import httpx, requests
url, second = sys.argv[1:]
bearer = "Bearer " + os.environ["TOKEN"]
headers = {"Authorization": bearer}
def said(answer): return answer.status_code, answer.json()["headers"]["authorization"] == bearer, answer.headers["x-said"] == bearer
print("requests", *said(requests.get(url + "/echo", headers=headers)))
pieces = (b"p" * 50_000 for _ in range(20))
print("requests", len(requests.post(url + "/echo", headers=headers, data=pieces).json()["body"]))
with httpx.Client() as client:
    print("httpx", *said(client.get(url + "/echo", headers=headers)))
with httpx.Client(http2=True) as client:
    answer = client.post(second + "/upload", headers=headers, content=b"h" * 100_000)
    print("httpx", answer.http_version, answer.text.strip())
"#;

const NODE: &str = r#"
const authorization = `Bearer ${process.env.TOKEN}`;
const answer = await fetch(process.argv[2] + "/echo", { method: "POST", body: "n".repeat(100_000), headers: { authorization } });
const seen = await answer.json();
console.log(answer.status, seen.body.length, seen.headers.authorization === authorization, answer.headers.get("x-said") === authorization);
"#;

const JAVA: &str = r#"
import java.net.URI;
import java.net.http.*;
import javax.net.ssl.HttpsURLConnection;

public class Client {
    public static void main(String[] arguments) throws Exception {
        String bearer = "Bearer " + System.getenv("TOKEN");
        var request = HttpRequest.newBuilder(URI.create(arguments[0] + "/echo")).header("Authorization", bearer).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.body().contains(bearer));
        var second = HttpRequest.newBuilder(URI.create(arguments[1] + "/upload")).header("Authorization", bearer);
        var posted = second.POST(HttpRequest.BodyPublishers.ofString("j".repeat(100000))).build();
        answer = HttpClient.newHttpClient().send(posted, HttpResponse.BodyHandlers.ofString());
        System.out.print(answer.version() + " " + answer.body());
        var old = (HttpsURLConnection) URI.create(arguments[0] + "/hello").toURL().openConnection();
        System.out.println(old.getResponseCode());
    }
}
"#;

/// The server of HTTP/2, and the addresses of both with the flags that allow them.
fn servers(world: &World) -> (super::super::world::Server, String, Vec<String>) {
    let second = world.serve("node", "http2.mjs", include_str!("http2.mjs"), "");
    let ports = [world.secure, second.ports[0]];
    let flags = bound_flags(&ports);
    (second, ports.map(|port| format!("https://api.test:{port}")).join(" "), flags)
}

#[test]
fn requests_and_httpx_work() {
    as_both(|world| {
        packages();
        let (_second, urls, flags) = servers(world);
        let (script, flags) = python(world, PYTHON, &urls, &flags);
        let says = "requests 200 True True\nrequests 1000000\nhttpx 200 True True\nhttpx HTTP/2 POST /upload 100000 true\n";
        both_ways(world, &flags, &script, says);
    });
}

#[test]
fn node_fetch_works_though_it_knows_no_proxy() {
    as_both(|world| {
        world.file("client.mjs", NODE);
        let script = format!("node client.mjs https://api.test:{}", world.secure);
        both_ways(world, &bound_flags(&[world.secure]), &script, "200 100000 true true\n");
    });
}

#[test]
fn java_works_though_it_has_a_list_of_authorities_of_its_own() {
    as_both(|world| {
        world.file("Client.java", JAVA);
        world.host("javac Client.java");
        let (_second, urls, flags) = servers(world);
        let says = "200 true\nHTTP_2 POST /upload 100000 true\n200\n";
        both_ways(world, &flags, &format!("java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Client {urls}"), says);
        // Those who open the file as everybody does find it whole, and the machine's authorities still in it.
        let list = "keytool -list -cacerts -storepass changeit | grep -c trustedCertEntry";
        let inside = world.inside(&super::words(&flags), list);
        let certificates = "grep -c BEGIN /run/stockade/authorities.pem";
        assert_eq!(inside.stdout, world.inside(&super::words(&flags), certificates).stdout, "{inside:?}");
        assert!(inside.code == Some(0) && inside.stderr.is_empty(), "{inside:?}");
    });
}
