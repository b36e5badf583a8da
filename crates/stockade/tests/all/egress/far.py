# An MCP server over HTTPS, for tests: far.py DIRECTORY TOKEN. Writes down the hosts it was asked as; prints its port.
import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIRECTORY, TOKEN = sys.argv[1], sys.argv[2]


def tool(name):
    return {"name": name, "description": "Does it.", "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}}}


def text(words):
    return {"content": [{"type": "text", "text": words}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", kind="application/json", headers=()):
        self.send_response(status)
        for name, value in [("Content-Type", kind), ("Content-Length", str(len(body))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    do_DELETE = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with open(DIRECTORY + "/asked.txt", "a") as log:
            log.write(f"{self.headers['Host']} {self.path}\n")
        if self.path == "/redirect":
            elsewhere = "https://other.test:" + self.headers["Host"].split(":")[1] + "/mcp"
            return self.answer(307, headers=[("Location", elsewhere)])
        if self.headers.get("Authorization") != "Bearer " + TOKEN:
            return self.answer(403, b"{}")
        message = json.loads(body)
        method = message.get("method")
        if "id" not in message:
            return self.answer(202)
        if method == "initialize":
            info = {"name": "far", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": [tool(name) for name in ["echo", "events", "endless", "page"]]}
        elif method == "tools/call":
            return self.call(message)
        else:
            error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
            return self.answer(200, json.dumps(error).encode())
        return self.answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    def call(self, message):
        name, arguments = message["params"]["name"], message["params"].get("arguments", {})
        # What it was given to act with, if it is allowed to come back.
        result = text(arguments.get("message", "") + " for " + self.headers["Authorization"])
        reply = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        if name == "events":
            return self.answer(200, f"event: message\ndata: {reply}\n\n".encode(), "text/event-stream")
        if name == "page":
            return self.answer(200, b"<html>hello</html>", "text/html")
        if name == "endless":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(1 << 30))
            self.end_headers()
            piece = b"[" + b" " * ((1 << 20) - 1)
            for _ in range(1 << 10):
                self.wfile.write(piece)
            return None
        return self.answer(200, reply.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(DIRECTORY + "/server.pem", DIRECTORY + "/server.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
