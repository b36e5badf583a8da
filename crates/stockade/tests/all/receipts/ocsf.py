"""Every line of an OCSF export fits the schema of its class, version 1.8.0, as published (package ocsf-json-schema)."""

import json
import sys

import jsonschema
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version="1.8.0"))
validators = {}
count = 0
for line in open(sys.argv[1], encoding="utf-8"):
    event = json.loads(line)
    assert event["metadata"]["version"] == "1.8.0"
    profiles = tuple(event["metadata"].get("profiles", []))
    key = (event["class_uid"], profiles)
    if key not in validators:
        name = schema.lookup_class_name_from_uid(class_uid=event["class_uid"])
        validators[key] = jsonschema.Draft202012Validator(schema.get_class_schema(class_name=name, profiles=list(profiles)))
    errors = [f"{'/'.join(map(str, e.path))}: {e.message[:300]}" for e in validators[key].iter_errors(event)]
    assert not errors, (event["class_uid"], errors)
    count += 1
print("ok", count)
