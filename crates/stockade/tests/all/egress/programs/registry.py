# A package for pip and one for npm, as registries serve them. registry.py DIRECTORY URL
import base64
import hashlib
import io
import json
import os
import sys
import tarfile
import zipfile

DIRECTORY, URL = sys.argv[1], sys.argv[2]


def put(path, data):
    path = os.path.join(DIRECTORY, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


wheel = io.BytesIO()
with zipfile.ZipFile(wheel, "w") as archive:
    info = "from_outside-1.0.dist-info/"
    archive.writestr("from_outside.py", "said = 'installed by pip'\n")
    archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: from-outside\nVersion: 1.0\n")
    archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr(info + "RECORD", "from_outside.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n")
name = "from_outside-1.0-py3-none-any.whl"
put("files/" + name, wheel.getvalue())
digest = hashlib.sha256(wheel.getvalue()).hexdigest()
put("simple/from-outside/index.html", f'<!DOCTYPE html><a href="../../files/{name}#sha256={digest}">{name}</a>'.encode())

package = {"name": "from-outside", "version": "1.0.0", "main": "index.js"}
tarball = io.BytesIO()
with tarfile.open(fileobj=tarball, mode="w:gz") as archive:
    for path, text in (("package/package.json", json.dumps(package)), ("package/index.js", "module.exports = 'installed by npm';\n")):
        entry = tarfile.TarInfo(path)
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
put("files/from-outside-1.0.0.tgz", tarball.getvalue())
integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball.getvalue()).digest()).decode()
dist = {"tarball": URL + "/files/from-outside-1.0.0.tgz", "integrity": integrity}
versions = {"1.0.0": package | {"dist": dist}}
put("npm/from-outside", json.dumps({"name": "from-outside", "dist-tags": {"latest": "1.0.0"}, "versions": versions}).encode())
