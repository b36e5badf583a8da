"""Checks an export of receipts, as docs/reference/receipts.md describes it. Usage: verify_export.py PUBLIC.pem EXPORT.jsonl

Written from that page alone, with the `cryptography` package for Ed25519; it shares no code with the product.
"""

import base64
import hashlib
import json
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

KINDS = {"intent", "outcome", "denied", "approval", "credential", "network", "lifecycle", "checkpoint"}


class Broken(Exception):
    pass


def need(condition, problem):
    if not condition:
        raise Broken(problem)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def canonical(value):
    """RFC 8785, for values without fractions."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        need(abs(value) <= 2**53 - 1, "a number that is too large")
        return str(value)
    if isinstance(value, str):
        short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
        return '"' + "".join(short.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in value) + '"'
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    need(isinstance(value, dict), "a fraction")
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"


def unhex(text, length):
    need(isinstance(text, str) and len(text) == 2 * length and set(text) <= set("0123456789abcdef"), "malformed hex")
    return bytes.fromhex(text)


def unbase64(text):
    need(isinstance(text, str), "malformed base64")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Broken("malformed base64") from error
    need(base64.b64encode(data).decode() == text, "base64 in another spelling")
    return data


def signed(key, signature, message):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature as error:
        raise Broken("the signature does not hold") from error


def read_line(line):
    need(line.endswith(b"\n"), "the line is cut")
    try:
        text = line[:-1].decode("utf-8")
        value = json.loads(text)
    except ValueError as error:
        raise Broken("not JSON") from error
    need(canonical(value) == text, "not canonical")
    return value


class Note:
    def __init__(self, note):
        need(isinstance(note, str) and "\n\n" in note and note.endswith("\n"), "not a signed note")
        text, _, lines = note.rpartition("\n\n")
        self.text = text + "\n"
        self.signatures = []
        for line in lines[:-1].split("\n"):
            dash, name, data = (line.split(" ") + ["", "", ""])[:3]
            need(dash == "\u2014" and name and line.count(" ") == 2, "not a signature line")
            self.signatures.append((name, unbase64(data)))
        fields = self.text[:-1].split("\n")
        need(len(fields) >= 3 and str(int(fields[1] if fields[1].isdecimal() else -1)) == fields[1], "not a checkpoint")
        self.origin, self.size, self.root, self.more = fields[0], int(fields[1]), unbase64(fields[2]), fields[3:]

    def signature_of(self, key):
        key_hash = sha256(self.origin.encode(), b"\n\x01", key)[:4]
        found = [data[4:] for name, data in self.signatures if name == self.origin and data[:4] == key_hash]
        return found[0] if found else None

    def check(self, key):
        signature = self.signature_of(key)
        need(signature is not None, "the key did not sign the checkpoint")
        signed(key, signature, self.text.encode())


class Keys:
    def __init__(self, trusted, rotations, note):
        self.rotations = rotations
        if not rotations:
            need(note.signature_of(trusted) is not None, "the trusted key is not the ledger's")
            self.first = trusted
            return
        self.first, before, last = unhex(rotations[0]["old"], 32), None, -1
        for rotation in rotations:
            need(set(rotation) == {"seq", "old", "new", "old_signature", "new_signature"}, "malformed rotation")
            old, new = unhex(rotation["old"], 32), unhex(rotation["new"], 32)
            need(before in (None, old) and rotation["seq"] > last, "rotations do not follow each other")
            message = f"stockade-rotation-v1\n{note.origin}\n{rotation['seq']}\n{rotation['old']}\n{rotation['new']}\n".encode()
            signed(old, unbase64(rotation["old_signature"]), message)
            signed(new, unbase64(rotation["new_signature"]), message)
            before, last = new, rotation["seq"]
        known = [self.first] + [unhex(rotation["new"], 32) for rotation in rotations]
        need(trusted in known, "the trusted key is not the ledger's")

    def at(self, seq):
        key = self.first
        for rotation in self.rotations:
            if rotation["seq"] < seq:
                key = unhex(rotation["new"], 32)
        return key

    def newest(self):
        return self.at(float("inf"))

    def rotation_at(self, seq):
        return next((rotation for rotation in self.rotations if rotation["seq"] == seq), None)


def root_of(leaves):
    if not leaves:
        return sha256()
    if len(leaves) == 1:
        return leaves[0]
    middle = 1
    while middle * 2 < len(leaves):
        middle *= 2
    return sha256(b"\x01", root_of(leaves[:middle]), root_of(leaves[middle:]))


def root_from(index, size, leaf, proof):
    """The root that a proof leads to: the tree is walked from the top to learn on which side each hash stands."""
    sides, start, end = [], 0, size
    while end - start > 1:
        middle = 1
        while middle * 2 < end - start:
            middle *= 2
        middle += start
        if index < middle:
            sides.append("right")
            end = middle
        else:
            sides.append("left")
            start = middle
    need(len(sides) == len(proof), "the proof has the wrong length")
    value = leaf
    for side, beside in zip(reversed(sides), proof):
        value = sha256(b"\x01", beside, value) if side == "left" else sha256(b"\x01", value, beside)
    return value


def check_record(value, note, keys):
    need(set(value) == {"receipt", "proof"}, "not a record")
    receipt = value["receipt"]
    for name in ("receipt_id", "kind", "time", "prev", "key_id", "signature"):
        need(isinstance(receipt.get(name), str), f"`{name}` is missing")
    seq = receipt.get("seq")
    need(type(seq) is int and 0 <= seq < note.size, "`seq` is wrong")
    need(receipt["kind"] in KINDS, "unknown kind")
    unhex(receipt["prev"], 32)
    key = keys.at(seq)
    need(receipt["key_id"] == sha256(key)[:8].hex(), "signed with another key")
    unsigned = {name: member for name, member in receipt.items() if name != "signature"}
    message = f"stockade-receipt-v1\n{note.origin}\n{canonical(unsigned)}".encode()
    signed(key, unbase64(receipt["signature"]), message)
    need(receipt.get("ledger", {}).get("rotation") == keys.rotation_at(seq), "the change of keys is not recorded")
    body = canonical(receipt).encode()
    leaf = sha256(b"\x00", body)
    proof = [unhex(text, 32) for text in value["proof"]]
    need(root_from(seq, note.size, leaf, proof) == note.root, "the proof does not lead to the root")
    return seq, receipt["prev"], sha256(body).hex(), leaf


def check(path, trusted):
    with open(path, "rb") as file:
        lines = file.readlines()
    place = "line 1 (header)"
    try:
        need(lines, "the file is empty")
        header = read_line(lines[0])
        need(set(header) == {"format", "version", "records", "checkpoint", "rotations"}, "not a header")
        need(header["format"] == "stockade-receipts" and header["version"] == 1, "another format")
        need(header["records"] in ("all", "some"), "malformed `records`")
        note = Note(header["checkpoint"])
        need(not note.more, "the header's checkpoint has further lines")
        keys = Keys(trusted, header["rotations"], note)
        note.check(keys.newest())
        everything = header["records"] == "all"
        last, digest, leaves = -1, sha256(f"stockade-ledger-v1\n{note.origin}\n".encode()).hex(), []
        for number, line in enumerate(lines[1:-1], start=2):
            place = f"line {number}"
            seq, prev, own, leaf = check_record(read_line(line), note, keys)
            need(seq == last + 1 if everything else seq > last, f"receipt {seq} after receipt {last}")
            need(seq != last + 1 or prev == digest, "`prev` is not the digest of the receipt before")
            last, digest = seq, own
            leaves.append(leaf)
        place = "the closing line"
        need(len(lines) > 1, "it is missing")
        closing = read_line(lines[-1])
        need(set(closing) == {"checkpoint"}, "it is missing")
        end = Note(closing["checkpoint"])
        end.check(keys.newest())
        need((end.origin, end.size, end.root) == (note.origin, note.size, note.root), "of another ledger or size")
        need(end.more == [f"export {len(leaves)} {sha256(*lines[:-1]).hex()}"], "count or digest is wrong")
        if everything:
            need(len(leaves) == note.size and root_of(leaves) == note.root, "the tree has another root")
    except Broken as problem:
        raise SystemExit(f"BROKEN: {place}: {problem}") from problem
    print(f"ok: {len(leaves)} receipts of {note.origin}")


def main():
    key_path, export_path = sys.argv[1:]
    with open(key_path, "rb") as file:
        key = load_pem_public_key(file.read())
    check(export_path, key.public_bytes(Encoding.Raw, PublicFormat.Raw))


main()
