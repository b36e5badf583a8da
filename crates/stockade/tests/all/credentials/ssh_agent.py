"""Asks the agent of SSH for what it must not give, and says what it answers: 5 is its only word for no."""

import os
import socket
import struct


def string(value):
    return struct.pack(">I", len(value)) + value


def connect():
    agent = socket.socket(socket.AF_UNIX)
    agent.settimeout(20)
    agent.connect(os.environ["SSH_AUTH_SOCK"])
    return agent


def ask(agent, message):
    agent.sendall(string(message))
    head = agent.recv(4, socket.MSG_WAITALL)
    return agent.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL) if len(head) == 4 else b""


def login(key, session=b"s" * 32):
    head = string(session) + b"\x32" + string(b"root") + string(b"ssh-connection") + string(b"publickey")
    return head + b"\x01" + string(b"ssh-ed25519") + string(key)


agent = connect()
listed = ask(agent, b"\x0b")
length = struct.unpack(">I", listed[5:9])[0]
key = listed[9 : 9 + length]
print("listed", listed[0], key[4:15].decode())
sshsig = b"SSHSIG" + string(b"git") + string(b"") + string(b"sha512") + string(b"h" * 64)
for name, data in [("bytes", b"anything"), ("sshsig", sshsig), ("foreign session", login(key))]:
    print(name, list(ask(connect(), b"\x0d" + string(key) + string(data) + bytes(4))))
# A session that nobody here has, with a host of one's own making.
bind = b"\x1b" + string(b"session-bind@openssh.com") + string(key) + string(b"s" * 32) + string(string(b"ssh-ed25519") + string(bytes(64))) + b"\x00"
other = connect()
print("bind", list(ask(other, bind)), list(ask(other, b"\x0d" + string(key) + string(login(key)) + bytes(4))))
for name, garbage in [("huge", struct.pack(">I", 1 << 31)), ("empty", bytes(4)), ("cut", string(b"\x0d\x00"))]:
    agent = connect()
    agent.sendall(garbage + b"x" * 1000)
    try:
        print(name, agent.recv(1))
    except ConnectionResetError:
        print(name, b"")
print("and still", ask(connect(), b"\x0b")[0])
