# A gRPC and a WebSocket server. services.py DIRECTORY TOKEN; prints their ports, gRPC first.
import ssl
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from websockets.sync.server import serve

DIRECTORY, TOKEN = sys.argv[1], sys.argv[2]


def certificate(name):
    with open(f"{DIRECTORY}/server.{name}", "rb") as file:
        return file.read()


def knows(context):
    return ("authorization", "Bearer " + TOKEN) in [(entry.key, entry.value) for entry in context.invocation_metadata()]


def one(request, context):
    context.set_trailing_metadata((("x-said", TOKEN),))
    return b"%s %s" % (request, str(knows(context)).encode())


def many(request, context):
    for number in range(int(request)):
        yield b"%d" % number


# Answers each message before it takes the next, so that a client that waits for an answer gets it.
def both(requests, context):
    for request in requests:
        yield request[::-1]


def refuse(request, context):
    context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")


methods = {
    "One": grpc.unary_unary_rpc_method_handler(one),
    "Many": grpc.unary_stream_rpc_method_handler(many),
    "Both": grpc.stream_stream_rpc_method_handler(both),
    "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
}
calls = grpc.server(ThreadPoolExecutor(8))
calls.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", methods),))
calls_port = calls.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(certificate("key"), certificate("pem"))]))
calls.start()


def echo(socket):
    socket.send(str(socket.request.headers.get("Authorization") == "Bearer " + TOKEN))
    for message in socket:
        socket.send(message)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{DIRECTORY}/server.pem", f"{DIRECTORY}/server.key")
sockets = serve(echo, "127.0.0.1", 0, ssl=context, max_size=None)
threading.Thread(target=sockets.serve_forever, daemon=True).start()
print(calls_port, sockets.socket.getsockname()[1], flush=True)
sys.stdin.read()
