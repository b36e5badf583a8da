# The world outside, for tests: an HTTP and an HTTPS server on loopback that write down what reached them.
#
# server.py DIRECTORY TOKEN: certificates and repositories are in DIRECTORY, and what was seen goes to DIRECTORY/seen.jsonl. Prints the
# two ports, plain first.
import base64
import json
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

DIRECTORY, TOKEN = sys.argv[1], sys.argv[2]
LOCK = threading.Lock()


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
        if self.path.startswith("/echo"):
            return self.answer(200, json.dumps(seen).encode(), [("Content-Type", "application/json"), ("X-Said", seen["headers"].get("authorization", ""))])
        return self.answer(200, b"hello from outside\n")

    do_GET = do_POST = do_PUT = do_HEAD = serve

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
