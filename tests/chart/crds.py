# SPDX-License-Identifier: Apache-2.0
"""Objects against the schemas of their CRDs, which tests/chart/fetch_crds.sh puts in .deps/crds. Rules in CEL and webhooks are not tried."""

import functools

import jsonschema
import yaml

import chart

KINDS = {"LeaderWorkerSet", "JobSet"}


def _strict(schema):
    """The schema, which refuses fields that it has not got: the API server drops those, with a warning."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: value if key in ("default", "enum", "required") else _strict(value) for key, value in schema.items()
            if not key.startswith("x-") and key not in ("description", "format")}
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {key: _strict(value) for key, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
    return made


@functools.lru_cache
def validator(kind, version):
    with (chart.ROOT / ".deps" / "crds" / f"{kind}.yaml").open(encoding="utf-8") as file:
        crd = yaml.load(file, yaml.CSafeLoader)
    [schema] = [one["schema"]["openAPIV3Schema"] for one in crd["spec"]["versions"] if one["name"] == version and one["served"]]
    schema = _strict(schema)
    schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own
    return jsonschema.Draft7Validator(schema)


def errors(one):
    group, _, version = one["apiVersion"].partition("/")
    assert group in ("leaderworkerset.x-k8s.io", "jobset.x-k8s.io")
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(one["kind"], version).iter_errors(one)]
