# Looks for values in everything that a program inside can look at: environments and arguments of processes, and files.
#
# search.py HEX...: the values, so written that the arguments are not what is found. Prints whether it finds what is there, and where the values are.
import os
import sys

os.environ["CONTROL"] = control = "a-word-that-is-" + "there-for-sure"
VALUES = [bytes.fromhex(text) for text in sys.argv[1:]]
PARTS = [value[at : at + 12] for value in VALUES for at in range(4, len(value) - 11)]
found, controls = [], 0


def look(name, data):
    global controls
    controls += control.encode() in data
    if any(part in data for part in PARTS):
        found.append(name)


for pid in [entry for entry in os.listdir("/proc") if entry.isdigit()]:
    for name in ("environ", "cmdline"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                look(file.name, file.read())
        except OSError:
            pass
with open("/tmp/control", "w") as file:
    file.write(control)
for top in ("/run", "/tmp", "/var", "/dev/shm", "/etc", os.environ["HOME"], os.getcwd()):
    for base, _, files in os.walk(top):
        for name in files:
            path = os.path.join(base, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 8 << 20:
                    with open(path, "rb") as file:
                        look(path, file.read())
            except OSError:
                pass
print("searched:", controls > 0, found, file=sys.stderr)
