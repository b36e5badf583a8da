"""What egress does, for mitmproxy: leads every connection to loopback and puts the key in the placeholder's place."""

import os

VALUE = os.environ["SWAP_VALUE"]
PLACEHOLDER = os.environ["SWAP_PLACEHOLDER"]


def server_connect(data):
    data.server.address = ("127.0.0.1", data.server.address[1])


def requestheaders(flow):
    value = flow.request.headers.get("authorization", "")
    if PLACEHOLDER in value:
        flow.request.headers["authorization"] = value.replace(PLACEHOLDER, VALUE)
