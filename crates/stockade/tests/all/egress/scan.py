# Looks for values in processes and files. scan.py WHAT…: numbers are processes (memory, environment, arguments), others directories.
#
# The values come in hexadecimal, one to a line, over standard input: nothing is looked for in this process itself. Prints where one is.
import base64
import os
import sys


def forms(value):
    # The beginning is public: placeholders have it too.
    value = value[4:]
    for part in (value[:16], value[-16:]):
        yield part
        yield part.hex().encode()
        yield "".join(f"%{byte:02x}" for byte in part).encode()
        yield "".join(f"%{byte:02X}" for byte in part).encode()
    for skip in range(3):
        # Without the ends, which depend on what stands before and after.
        yield base64.b64encode(value[skip:])[:20]


NEEDLES = [form for line in sys.stdin for form in forms(bytes.fromhex(line.strip()))]


def is_in(data):
    return any(needle in data for needle in NEEDLES)


def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        looked = 0
        for line in maps:
            place, rights, *_ = line.split()
            if "r" not in rights or "[v" in line:
                continue
            begin, end = (int(text, 16) for text in place.split("-"))
            before = b""
            for at in range(begin, end, 1 << 20):
                try:
                    mem.seek(at)
                    data = mem.read(min(1 << 20, end - at))
                except (OSError, OverflowError):
                    break
                looked += len(data)
                if is_in(before + data):
                    print(f"{pid} memory {line.strip()}")
                before = data[-64:]
        if looked == 0:
            raise ProcessLookupError(pid)


def process(pid):
    for name in ("environ", "cmdline"):
        with open(f"/proc/{pid}/{name}", "rb") as file:
            if is_in(file.read()):
                print(pid, name)
    memory(pid)


for what in sys.argv[1:]:
    if what.isdigit():
        try:
            process(what)
        except (FileNotFoundError, ProcessLookupError):
            # It has ended meanwhile. One that is still there fails.
            assert not os.path.exists(f"/proc/{what}/maps"), what
        continue
    for base, _, files in os.walk(what):
        for name in files:
            path = os.path.join(base, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if is_in(file.read()):
                        print(path)
