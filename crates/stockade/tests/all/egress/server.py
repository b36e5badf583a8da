# The world outside, for tests: an HTTP and an HTTPS server on loopback that write down what reached them.
#
# server.py DIRECTORY TOKEN: certificates, repositories and packages are in DIRECTORY, and what was seen goes to DIRECTORY/seen.jsonl. Prints
# the two ports, plain first.
import base64
import json
import os
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

DIRECTORY, TOKEN = sys.argv[1], sys.argv[2]
LOCK = threading.Lock()
# How many events somebody said to have got.
REACHED = [0]
REACHED_MORE = threading.Condition()
EVENTS = 10_000


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            whole = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def serve(self):
        body = self.body()
        seen = {
            "method": self.command,
            "path": self.path,
            "tls": isinstance(self.connection, ssl.SSLSocket),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode("latin-1"),
        }
        with LOCK, open(DIRECTORY + "/seen.jsonl", "a") as log:
            log.write(json.dumps(seen) + "\n")
        if self.path.startswith("/git/"):
            return self.git(body)
        if self.path.startswith("/registry/"):
            return self.registry()
        if self.path.startswith("/events"):
            return self.events()
        if self.path.startswith("/reached/"):
            return self.reached(int(self.path.rsplit("/", 1)[1]))
        if self.path.startswith("/trailers"):
            return self.trailers()
        if self.path.startswith("/echo"):
            return self.answer(200, json.dumps(seen).encode(), [("Content-Type", "application/json"), ("X-Said", seen["headers"].get("authorization", ""))])
        return self.answer(200, b"hello from outside\n")

    do_GET = do_POST = do_PUT = do_HEAD = serve

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def begin_chunks(self, headers):
        self.send_response(200)
        for name, value in [*headers, ("Transfer-Encoding", "chunked")]:
            self.send_header(name, value)
        self.end_headers()

    def trailers(self):
        self.begin_chunks([("Trailer", "X-Sum")])
        self.chunk(b"hello from outside\n")
        self.wfile.write(b"0\r\nX-Sum: of " + TOKEN.encode() + b"\r\n\r\n")

    # Every thousand events nothing follows until the client says that it has them: what is held back on the way is never got.
    def events(self):
        REACHED[0] = 0
        self.begin_chunks([("Content-Type", "text/event-stream")])
        for number in range(1, EVENTS + 1):
            self.chunk(f"id: {number}\ndata: event {number} for {TOKEN}\n\n".encode())
            if number % 1000 == 0:
                with REACHED_MORE:
                    REACHED_MORE.wait_for(lambda: REACHED[0] >= number)
        self.wfile.write(b"0\r\n\r\n")

    def reached(self, number):
        with REACHED_MORE:
            REACHED[0] = number
            REACHED_MORE.notify_all()
        return self.answer(204, b"")

    # Packages, for whoever has the token: as pip's password or npm's bearer token.
    def registry(self):
        basic = "Basic " + base64.b64encode(("git:" + TOKEN).encode()).decode()
        if self.headers.get("Authorization") not in (basic, "Bearer " + TOKEN):
            return self.answer(401, b"who are you?\n", [("WWW-Authenticate", 'Basic realm="registry"')])
        path = os.path.join(DIRECTORY, "registry", *urlsplit(self.path).path.split("/")[2:])
        if os.path.isdir(path):
            path = os.path.join(path, "index.html")
        if not os.path.isfile(path):
            return self.answer(404, b"no such package\n")
        kind = {".html": "text/html", ".json": "application/json"}.get(os.path.splitext(path)[1], "application/octet-stream")
        with open(path, "rb") as file:
            return self.answer(200, file.read(), [("Content-Type", kind)])

    def git(self, body):
        wanted = "Basic " + base64.b64encode(("git:" + TOKEN).encode()).decode()
        if self.headers.get("Authorization") != wanted:
            return self.answer(401, b"who are you?\n", [("WWW-Authenticate", 'Basic realm="git"')])
        url = urlsplit(self.path)
        environment = {
            "PATH": "/usr/bin:/bin",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": url.path[len("/git"):],
            "QUERY_STRING": url.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_PROJECT_ROOT": DIRECTORY + "/repositories",
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REMOTE_USER": "git",
        }
        ran = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, rest = ran.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        return self.answer(status, rest, [header for header in headers if header[0] != "Status"])


plain = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
secure = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(DIRECTORY + "/server.pem", DIRECTORY + "/server.key")
secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
for server in (plain, secure):
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(plain.server_address[1], secure.server_address[1], flush=True)
sys.stdin.read()
