"""Takes what a server sends by itself, and writes it down: one JSON object for each request, with whether its signature holds.

Arguments: the file to write to, the key, and where TLS is wanted a certificate and its key. The first line of output is the port. Answers are
taken from the file `answers` beside, one status for each line, 200 after that.
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import ssl
import sys

written, key = sys.argv[1], sys.argv[2].encode()
if key.startswith(b"whsec_"):
    key = base64.b64decode(key[len(b"whsec_"):])
answers = os.path.join(os.path.dirname(written), "answers")


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        signed = b".".join([self.headers.get(name, "").encode() for name in ("webhook-id", "webhook-timestamp")] + [body])
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        row = {
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": json.loads(body),
            "bytes": len(body),
            "holds": hmac.compare_digest(expected, self.headers.get("webhook-signature", "")),
        }
        lines = open(answers).read().split() if os.path.exists(answers) else []
        status = int(lines.pop(0)) if lines else 200
        if os.path.exists(answers):
            open(answers, "w").write("\n".join(lines))
        with open(written, "a") as file:
            file.write(json.dumps({**row, "answered": status}) + "\n")
        self.send_response(status)
        if status // 100 == 3:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *words):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Receiver)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
