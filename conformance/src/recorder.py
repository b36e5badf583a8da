# Servers on loopback that write down every byte they get. recorder.py DIRECTORY; prints the ports: TLS, other TLS, plain, datagrams.
#
# /redirect/BASE64 answers with a redirect to what it says at denied.test; /echo answers with the whole request; everything else with a word.
import base64
import os
import re
import socket
import ssl
import sys
import threading

DIRECTORY = sys.argv[1]
LOG = open(os.path.join(DIRECTORY, "received"), "ab", buffering=0)


def answer(request, other):
    head = request.partition(b"\r\n\r\n")[0]
    found = re.match(rb"[A-Z]+ /redirect/(\S+)", head)
    if found:
        place = b"https://denied.test:%d/%s" % (other, base64.b64decode(found[1]))
        return b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % place
    body = request if b" /echo" in head else b"got it\n"
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)


def is_whole(request):
    head, end, body = request.partition(b"\r\n\r\n")
    if not end:
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return len(body) >= int(length[1] if length else 0)


def serve(connection, context, other):
    try:
        connection.settimeout(30)
        if context:
            connection = context.wrap_socket(connection, server_side=True)
        request = b""
        while data := connection.recv(65536):
            LOG.write(data)
            request = (request + data)[-1 << 16:] if b"\r\n\r\n" not in request else request + data
            if request.startswith(b"PUT ") and b"100-continue" in request and not request.partition(b"\r\n\r\n")[2]:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            elif is_whole(request):
                connection.sendall(answer(request, other))
                break
        connection.close()
    except OSError:
        pass


def listen(listener, context, other):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, context, other), daemon=True).start()


def datagrams(receiver):
    while True:
        LOG.write(receiver.recv(65536))


def tcp(address="127.0.0.1", port=0):
    return socket.create_server((address, port))


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(DIRECTORY + "/server.pem", DIRECTORY + "/server.key")
secure, other, plain = tcp(), tcp(), tcp()
ports = [listener.getsockname()[1] for listener in (secure, other, plain)]
# The granted port at an address that is not granted.
elsewhere = tcp("127.0.0.2", ports[0])
named = socket.socket(socket.AF_UNIX)
named.bind(DIRECTORY + "/socket")
os.chmod(DIRECTORY + "/socket", 0o777)
abstract = socket.socket(socket.AF_UNIX)
abstract.bind(f"\0stockade-recorder-{ports[2]}")
for listener in (named, abstract):
    listener.listen()
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
listeners = [(secure, context), (other, context), (elsewhere, None), (plain, None), (named, None), (abstract, None)]
for listener, how in listeners:
    threading.Thread(target=listen, args=(listener, how, ports[1]), daemon=True).start()
threading.Thread(target=datagrams, args=(receiver,), daemon=True).start()
print(*ports, receiver.getsockname()[1], flush=True)
sys.stdin.read()
