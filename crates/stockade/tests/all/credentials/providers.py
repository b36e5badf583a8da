# Providers and what they guard, for tests: token endpoints, a Kubernetes API server, a registry of images and of packages, on loopback.
#
# providers.py DIRECTORY VALUE: certificates and public keys are in DIRECTORY, and what was asked goes to DIRECTORY/asked.jsonl. Every token that
# is given out holds MARK, so that one search finds any of them. Prints the two ports, plain first.
import base64
import hashlib
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

DIRECTORY, VALUE = sys.argv[1], sys.argv[2]
MARK = "mInTeD7qX9zK4wR8vB2nL5"
CLIENT_SECRET = "cLiEnT-sEcReT-0a1b2c3d4e5f"
LOCK = threading.Lock()
GIVEN = {}  # token -> what it is for
REFRESH = {"current": "rEfReSh-0-6f5e4d3c2b1a"}

IMAGE = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}}).encode()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def give(purpose):
    with LOCK:
        token = f"tok{len(GIVEN)}-{MARK}"
        GIVEN[token] = purpose
    return token


def verified(assertion, public):
    """The claims of a JWT, which openssl checks."""
    head, claims, signature = assertion.split(".")
    decode = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if json.loads(decode(head))["alg"] != "RS256":
        return None
    with LOCK:
        with open(DIRECTORY + "/signature", "wb") as file:
            file.write(decode(signature))
        words = ["openssl", "dgst", "-sha256", "-verify", f"{DIRECTORY}/{public}", "-signature", DIRECTORY + "/signature"]
        checked = subprocess.run(words, input=f"{head}.{claims}".encode(), capture_output=True, check=False)
    return json.loads(decode(claims)) if checked.returncode == 0 else None


def pods():
    metadata = {"name": "pod-of-the-cluster", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}]}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": status}
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=()):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **dict(headers), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def serve(self):
        self.said = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.by = self.headers.get("Authorization", "")
        self.place = urlsplit(self.path).path
        with LOCK, open(DIRECTORY + "/asked.jsonl", "a") as log:
            log.write(json.dumps({"method": self.command, "path": self.path, "authorization": self.by, "body": self.said}) + "\n")
        first = self.place.split("/")[1]
        return {
            "oauth": self.oauth,
            "gcp": self.gcp,
            "app": self.github,
            "installation": self.github,
            "guarded": self.guarded,
            "api": self.kubernetes,
            "apis": self.kubernetes,
            "version": self.kubernetes,
            "openapi": self.kubernetes,
            "v2": self.images,
            "-": self.npm,
            "from-outside": self.npm,
            "simple": self.pip,
            "files": self.pip,
            "crates": self.crates,
            "evil": self.evil,
        }.get(first, lambda: self.answer(404, {"message": "nothing here"}))()

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = serve

    def bearer(self):
        return self.by.removeprefix("Bearer ") if self.by.startswith("Bearer ") else None

    def is_basic(self, user, password):
        return self.by == "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    # What a token opens, and whose it is.
    def guarded(self):
        purpose = GIVEN.get(self.bearer())
        if not purpose:
            return self.answer(401, {"message": "who are you?"})
        return self.answer(200, {"opened": purpose, "echo": self.by})

    def oauth(self):
        form = {name: values[0] for name, values in parse_qs(self.said).items()}
        proved = self.is_basic("client", CLIENT_SECRET) or (form.get("client_id"), form.get("client_secret")) == ("client", CLIENT_SECRET)
        if not proved:
            return self.answer(401, {"error": "invalid_client"})
        if self.place == "/oauth/revoke":
            GIVEN.pop(form["token"], None)
            return self.answer(200, {})
        answer = {"token_type": "Bearer", "expires_in": 600, "scope": form.get("scope", "")}
        if form["grant_type"] == "client_credentials":
            return self.answer(200, {**answer, "access_token": give("client")})
        with LOCK:
            if form.get("refresh_token") != REFRESH["current"]:
                return self.answer(400, {"error": "invalid_grant"})
            number = int(REFRESH["current"].split("-")[1]) + 1
            REFRESH["current"] = f"rEfReSh-{number}-6f5e4d3c2b1a"
        # Of an end so near that the next call asks again.
        return self.answer(200, {**answer, "expires_in": 5, "access_token": give(f"refreshed {number}"), "refresh_token": REFRESH["current"]})

    def gcp(self):
        form = {name: values[0] for name, values in parse_qs(self.said).items()}
        claims = verified(form["assertion"], "public.pem")
        here = f"http://{self.headers['Host']}/gcp/token"
        good = claims and claims["aud"] == here and claims["iss"] == "robot@project.example" and claims["exp"] > time.time()
        if not good or form["grant_type"] != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return self.answer(400, {"error": "invalid_grant"})
        return self.answer(200, {"access_token": give(claims["scope"]), "token_type": "Bearer", "expires_in": 3599})

    def github(self):
        if self.command == "DELETE":
            return self.answer(204 if GIVEN.pop(self.bearer() or self.by.removeprefix("token "), None) else 401, b"")
        claims = verified(self.bearer() or "..", "public.pem")
        if not claims or str(claims["iss"]) != "4711" or self.place != "/app/installations/42/access_tokens":
            return self.answer(401, {"message": "A JSON web token could not be decoded"})
        asked = json.loads(self.said or "{}")
        end = datetime.now(timezone.utc) + timedelta(hours=1)
        answer = {"token": give("app"), "expires_at": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "permissions": asked.get("permissions", {})}
        answer["repositories"] = [{"name": name, "full_name": "owner/" + name} for name in asked.get("repositories", [])]
        answer["repository_selection"] = "selected"
        return self.answer(201, answer)

    def kubernetes(self):
        if self.place == "/api/v1/namespaces/team/serviceaccounts/robot/token":
            asked = json.loads(self.said)
            spec = asked["spec"]
            if self.bearer() != VALUE or asked["kind"] != "TokenRequest" or spec.get("audiences") != ["cluster"]:
                return self.answer(403, {"kind": "Status", "status": "Failure", "message": "not you", "reason": "Forbidden", "code": 403})
            end = datetime.now(timezone.utc) + timedelta(seconds=spec["expirationSeconds"])
            status = {"token": give("cluster"), "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
            return self.answer(201, {**asked, "status": status})
        # The one who may ask for tokens opens nothing else, but where a test is about such a one.
        stored = self.headers["Host"].startswith("api.test")
        if GIVEN.get(self.bearer()) != "cluster" and not (stored and self.bearer() == VALUE):
            message = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}
            return self.answer(401, message)
        pod = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"], "shortNames": ["po"]}
        known = {
            "/version": {"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [pod]},
            "/api/v1/namespaces/team/pods": pods(),
            "/api/v1/namespaces/default/pods": pods(),
        }
        if self.place not in known:
            return self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
        return self.answer(200, known[self.place])

    def images(self):
        if not self.is_basic("me", VALUE):
            return self.answer(401, {"errors": [{"code": "UNAUTHORIZED"}]}, [("WWW-Authenticate", 'Basic realm="images"')])
        if self.place.endswith("/manifests/latest"):
            kind = "application/vnd.docker.distribution.manifest.v2+json"
            part = {"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(IMAGE), "digest": digest(IMAGE)}
            manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": part, "layers": []}).encode()
            return self.answer(200, manifest, [("Content-Type", kind), ("Docker-Content-Digest", digest(manifest))])
        if "/blobs/" in self.place:
            return self.answer(200, IMAGE, [("Content-Type", "application/octet-stream")])
        return self.answer(200, {})

    def npm(self):
        if self.bearer() != VALUE:
            return self.answer(401, {"error": "who are you?"})
        if self.place == "/-/whoami":
            return self.answer(200, {"username": "somebody-at-npm"})
        version = {"name": "from-outside", "version": "1.2.3", "dist": {"tarball": "http://127.0.0.1/none.tgz", "shasum": "0" * 40}}
        return self.answer(200, {"name": "from-outside", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}})

    def pip(self):
        if not self.is_basic("__token__", VALUE):
            return self.answer(401, b"who are you?", [("WWW-Authenticate", 'Basic realm="packages"')])
        if self.place.startswith("/files/"):
            with open(DIRECTORY + self.place, "rb") as file:
                return self.answer(200, file.read())
        page = b'<!DOCTYPE html><html><body><a href="/files/from_outside-1.0-py3-none-any.whl">from_outside-1.0-py3-none-any.whl</a></body></html>'
        return self.answer(200, page, [("Content-Type", "text/html")])

    # As crates.io: the token itself, and no word before it.
    def crates(self):
        return self.answer(200, {"ok": True}) if self.by == VALUE else self.answer(403, {"errors": []})

    # What a provider should not do.
    def evil(self):
        way = self.place.split("/")[2]
        if way == "redirect":
            return self.answer(302, b"", [("Location", f"http://127.0.0.2:{self.server.server_address[1]}/oauth/token")])
        if way == "garbage":
            return self.answer(200, bytes(range(256)) * 8)
        if way == "echo":
            return self.answer(500, {"error": f"what is {CLIENT_SECRET}?", "error_description": self.said + " " + self.by})
        if way == "hang":
            return time.sleep(60)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(1 << 30))
        self.end_headers()
        for _ in range(1 << 10):
            self.wfile.write(b" " * (1 << 20))
        return None


os.makedirs(DIRECTORY + "/files", exist_ok=True)
with zipfile.ZipFile(DIRECTORY + "/files/from_outside-1.0-py3-none-any.whl", "w") as wheel:
    about = "from_outside-1.0.dist-info/"
    wheel.writestr("from_outside.py", "")
    wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: from-outside\nVersion: 1.0\n")
    wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(about + "RECORD", "")
plain = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
secure = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(DIRECTORY + "/server.pem", DIRECTORY + "/server.key")
secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
for server in (plain, secure):
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(plain.server_address[1], secure.server_address[1], flush=True)
sys.stdin.read()
