"""Every line of an in-toto export is a DSSE envelope that securesystemslib verifies, with a statement that in-toto-attestation takes."""

import json
import sys

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf.json_format import ParseDict
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

public = load_pem_public_key(open(sys.argv[2], "rb").read())
count = 0
for line in open(sys.argv[1], encoding="utf-8"):
    raw = json.loads(line)
    envelope = Envelope.from_dict(json.loads(line))
    keyid = raw["signatures"][0]["keyid"]
    key = SSlibKey.from_crypto(public, keyid=keyid)
    assert list(envelope.verify([key], 1)) == [keyid]
    changed = Envelope(envelope.payload + b" ", envelope.payload_type, envelope.signatures)
    try:
        changed.verify([key], 1)
    except Exception:
        pass
    else:
        raise AssertionError("a changed payload verifies")
    assert raw["payloadType"] == "application/vnd.in-toto+json"
    value = json.loads(envelope.payload)
    message = ParseDict(value, statement_pb2.Statement())
    statement = Statement.copy_from_pb(message)
    statement.validate()
    assert len(value["subject"]) >= 1 and all(len(one["digest"]["sha256"]) == 64 for one in value["subject"])
    count += 1
print("ok", count)
