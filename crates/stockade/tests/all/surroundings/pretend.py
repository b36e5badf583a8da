"""Starts a program on a kernel that refuses more than ours: pretend.py ERRNO:CALL[,CALL...] ... -- PROGRAM ARGS...

With `ids` among the words the program runs in a user namespace that has every id (so that root and others are themselves), and
`user.NAME=VALUE` sets a switch of that namespace: it holds for what is made below it and nothing else on the machine.
`DONE` in the place of an errno has a call do nothing and say that it did.
`landlock=N` makes the kernel say that it has version N: the question is answered by this program, every other call goes on.
"""

import array
import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import sys

CALLS = {  # x86_64, aarch64
    "clone3": (435, 435),
    "mount": (165, 40),
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "sethostname": (170, 161),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
libc = ctypes.CDLL(None, use_errno=True)


def instruction(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)


def refuse(rules):
    install([(number, 0x00050000 | answer) for number, answer in rules], 0)


def install(rules, flags):
    """A filter that answers some calls and lets the others go on."""
    program = instruction(0x20, 0, 0, 0)  # the number of the call
    for number, answer in rules:
        program += instruction(0x15, 0, 1, number) + instruction(0x06, 0, 0, answer)
    program += instruction(0x06, 0, 0, 0x7FFF0000)
    text = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    whole = Program(len(program) // 8, ctypes.addressof(text))
    assert libc.prctl(38, 1, 0, 0, 0) == 0, "no_new_privs"
    answer = libc.syscall({"x86_64": 317, "aarch64": 277}[platform.machine()], 1, flags, ctypes.byref(whole))
    assert answer >= 0, "the filter"
    return answer


def with_landlock(version, then):
    """Runs `then` where the kernel says that it has this version of Landlock, and ends as it ends."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        listener = install([(CALLS["landlock_create_ruleset"][0], 0x7FC00000)], 8)
        theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
        os.close(listener)
        then()
    descriptors = array.array("i")
    descriptors.frombytes(ours.recvmsg(1, socket.CMSG_LEN(4))[1][0][2][:4])
    listener, ended = descriptors[0], os.pidfd_open(pid)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while ended not in [fd for fd, _ in poll.poll()]:
        call = bytearray(80)
        try:
            fcntl.ioctl(listener, 0xC0502100, call)
            number, flags = struct.unpack_from("Q", call)[0], struct.unpack_from("Q", call, 48)[0]
            # The question for the version is told by its flag; everything else is the kernel's to answer.
            answer = (version, 0, 0) if flags & 1 else (0, 0, 1)
            fcntl.ioctl(listener, 0xC0182101, struct.pack("Qqii", number, *answer))
        except OSError:
            pass  # Whoever asked is gone.
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def with_ids(then):
    """Runs `then` in a user namespace with every id, and ends as it ends."""
    ready, ready_write = os.pipe()
    go, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        assert libc.unshare(0x10000000) == 0, "a user namespace"
        os.write(ready_write, b"x")
        os.read(go, 1)
        then()
    os.read(ready, 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write("0 0 4294967295")
    os.write(go_write, b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def main():
    end = sys.argv.index("--")
    words, program = sys.argv[1:end], sys.argv[end + 1 :]
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    rules = []
    for word in words:
        if ":" in word:
            answer, names = word.split(":")
            rules += [(CALLS[name][column], 0 if answer == "DONE" else getattr(errno, answer)) for name in names.split(",")]

    def start():
        for word in words:
            if word.startswith("user."):
                key, value = word.split("=")
                with open("/proc/sys/" + key.replace(".", "/"), "w") as file:
                    file.write(value)
        versions = [int(word.split("=")[1]) for word in words if word.startswith("landlock=")]
        with_landlock(versions[0], become) if versions else become()

    def become():
        if "ordinary" in words:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        if rules:
            refuse(rules)
        os.execvp(program[0], program)

    with_ids(start) if "ids" in words else start()


main()
