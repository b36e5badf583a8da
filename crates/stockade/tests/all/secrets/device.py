"""An issuer of tokens on loopback: a device flow that a person agrees to at the third question, and an API that demands the token.

First line: the port."""
import http.server
import json
import sys
import urllib.parse

polls = 0


class Issuer(http.server.BaseHTTPRequestHandler):
    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        global polls
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        if self.path == "/device":
            where = f"http://127.0.0.1:{self.server.server_port}/activate"
            return self.answer(200, {"device_code": "device-code-of-some-length", "user_code": "WDJB-MJHT", "verification_uri": where,
                                     "expires_in": 60, "interval": 1})
        if form.get("grant_type") == "urn:ietf:params:oauth:grant-type:device_code":
            polls += 1
            if form.get("device_code") != "device-code-of-some-length":
                return self.answer(400, {"error": "invalid_grant"})
            if polls < 3:
                return self.answer(400, {"error": "authorization_pending"})
            return self.answer(200, {"access_token": "access-token-of-some-length", "token_type": "Bearer", "expires_in": 60,
                                     "refresh_token": "refresh-token-of-some-length"})
        if form.get("grant_type") == "refresh_token" and form.get("refresh_token") == "refresh-token-of-some-length":
            return self.answer(200, {"access_token": "another-token-of-some-length", "token_type": "Bearer", "expires_in": 600})
        return self.answer(400, {"error": "invalid_grant"})

    def do_GET(self):
        good = self.headers.get("authorization") == "Bearer another-token-of-some-length"
        self.answer(200 if good else 401, {"good": good})

    def log_message(self, *words):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
print(server.server_port, flush=True)
server.serve_forever()
