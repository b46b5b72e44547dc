"""values.schema.json of the chart, from its values.yaml: `python k8s/schema.py` writes it.

Every key of values.yaml is known and no other; a value has the type of its default. Settings are those of the service of that name,
with the type that the service gives them; other maps that are empty or free by nature take any names.
"""

import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union

import msgspec
import yaml

from colo_collector.settings import CollectorSettings
from colo_common.runtime.setting_values import struct_of
from colo_common.runtime.settings import kinds_of
from colo_evictor.settings import EvictorSettings
from colo_executor.knob_table import WEIGHT_LEAST, WEIGHT_MOST
from colo_executor.settings import ExecutorSettings
from colo_executor.unmanaged import UnmanagedGroup
from colo_gateway.settings import GatewaySettings
from colo_jobs.settings import JobsSettings
from colo_overcommit.settings import OvercommitSettings
from colo_scheduler.settings import SchedulerSettings

CHART = Path(__file__).parent / "colo"
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
#: Maps whose names are the user's, and what each holds.
FREE: dict[str, dict[str, Any]] = {
    "settings": {"type": "object"},
    "labels": TEXTS,
    "nodeSelector": TEXTS,
    "clients": TEXTS,
    "jobUsers": {"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"type": "object"} for name in ("requests", "limits")},
    },
}
#: Who has settings, and which: those of `nodes` are for both agents, so both must have them.
SETTINGS = {
    "gateway": kinds_of(GatewaySettings),
    "jobs": kinds_of(JobsSettings),
    "scheduler": kinds_of(SchedulerSettings),
    "overcommit": kinds_of(OvercommitSettings),
    "evictor": kinds_of(EvictorSettings),
    "collector": kinds_of(CollectorSettings),
    "executor": kinds_of(ExecutorSettings),
}
SETTINGS["nodes"] = {key: kind for key, kind in SETTINGS["collector"].items() if SETTINGS["executor"].get(key) == kind}
#: They become environment variables, so that a number or a truth may also be written as text.
SETTING = {"type": ["string", "number", "boolean"]}
TRUTHS = [True, False, "true", "false", "yes", "no", "on", "off"]
#: Rules beyond the type.
RULES: dict[str, dict[str, Any]] = {
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "logLevel": {"enum": ["debug", "info", "warning", "error"]},
    "streamReplicas": {"enum": [1, 3, 5]},
    "replicas": {"minimum": 0, "maximum": 100},
    "minReplicas": {"minimum": 1, "maximum": 100},
    "maxReplicas": {"minimum": 1, "maximum": 100},
    "cpuPercent": {"minimum": 0, "maximum": 100},
    "pendingMessages": {"minimum": 0},
    "stateDir": {"pattern": "^/"},
    "nodeFolder": {"pattern": "^(/.*)?$"},
    "outputDir": {"pattern": "^(/.*)?$"},
    "streamDiskBytes": {"minimum": 0},
    "maxUnavailable": {"type": ["string", "integer"], "pattern": "^[0-9]+%$", "minimum": 0},
    "pullSecrets": {
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {"name": {"type": "string"}},
        }
    },
    "tolerations": {"items": {"type": "object"}},
    "interval": {"pattern": "^[0-9]+(ms|s|m)$"},
}
#: What the members of `executor.unmanaged` mean, for whoever writes values in an editor; the executor says what is wrong beyond it.
UNMANAGED = {
    "group": "path of a control group below /sys/fs/cgroup; patterns of the shell may follow behind its first name",
    "weight_least": "a CPU weight below it is raised, one above it stays; 1024 is the kernel's default",
    "cpu_most_mcpu": "ceiling of its CPU use, in thousandths of a CPU",
    "memory_most_bytes": "ceiling of its memory",
    "cpus": 'the CPUs that it runs on, such as "0-1"',
    "clear_of_own_cpus": "whether it keeps off the CPUs that LSE and LSR work has as its own; takes no pattern",
    "memory_low_bytes": "memory that the kernel takes from it only when nothing else is left to take (cgroup v2)",
    "memory_min_bytes": "memory that the kernel never takes from it (cgroup v2)",
}
#: What the executor refuses in any case: an installation says it at once, where a pod would begin again and again.
UNMANAGED_RULES: dict[str, dict[str, Any]] = {
    "group": {"pattern": "^[A-Za-z0-9][A-Za-z0-9_.@-]*(/[^/]+)*$"},
    "weight_least": {"minimum": WEIGHT_LEAST + 1, "maximum": WEIGHT_MOST},
    "cpu_most_mcpu": {"minimum": 10},
    "memory_most_bytes": {"minimum": 1 << 20},
    "cpus": {"pattern": "^[0-9][0-9,-]*$"},
    "clear_of_own_cpus": {},
    "memory_low_bytes": {"minimum": 1 << 20},
    "memory_min_bytes": {"minimum": 1 << 20},
}


def struct_schema(kind: Any) -> dict[str, Any]:
    """The schema of a list, a map or a struct, with all that it is made of in place."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")

    def whole(part: Any) -> Any:
        if isinstance(part, list):
            return [whole(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return whole(parts[part["$ref"]])
        return {key: whole(each) for key, each in part.items() if key not in ("title", "description", "default")}

    found: dict[str, Any] = whole(schema)
    return found


def unmanaged_schema() -> dict[str, Any]:
    """The schema of `executor.unmanaged`: entries that say of a group what is kept there."""
    found = struct_schema(tuple[UnmanagedGroup, ...])
    members = found["items"]["properties"]
    if members.keys() != UNMANAGED.keys():
        raise ValueError(f"UNMANAGED must say what these are: {sorted(members.keys() ^ UNMANAGED.keys())}")
    for name, member in members.items():
        members[name] = member | {"description": UNMANAGED[name]} | UNMANAGED_RULES[name]
    # A name alone keeps nothing.
    found["items"]["minProperties"] = 2
    return found


def setting_of(kind: Any) -> dict[str, Any]:
    """The schema of a setting of this type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        (meta,) = kind.__metadata__
        limits = {"minimum": meta.ge, "maximum": meta.le}
        return setting_of(inner[0]) | {name: limit for name, limit in limits.items() if limit is not None}
    if origin in (Union, types.UnionType):
        (given,) = (each for each in inner if each is not type(None))
        found = setting_of(given)
        return found | {"pattern": f"^$|^none$|{found['pattern']}"} if "pattern" in found else SETTING
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        words = [each.value if isinstance(each, Enum) else each for each in inner or kind]
        # YAML takes some words for truths, and services take those for the words.
        truths = [
            truth for truth, meant in ((False, {"off", "no"}), (True, {"on", "yes"})) if meant & {*map(str, words)}
        ]
        return {"enum": [*words, *(str(word) for word in words if not isinstance(word, str)), *truths]}
    if any(struct_of(each) for each in inner):
        # JSON may be written as text, too.
        found = struct_schema(kind)
        return found | {"type": [found["type"], "string"]}
    if kind is bool:
        return {"enum": TRUTHS}
    if kind is int:
        return {"type": ["integer", "string"], "pattern": "^-?[0-9]+$"}
    if kind is float:
        return {"type": ["number", "string"], "pattern": "^-?[0-9]+([.][0-9]+)?(e-?[0-9]+)?$"}
    return SETTING


def settings_of(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a service's settings: one pattern for all keys of a type, and no other key."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for key, kind in sorted(kinds.items()):
        schema = setting_of(kind)
        found.setdefault(json.dumps(schema), ([], schema))[0].append(key)
    patterns = {f"^({'|'.join(keys)})$": schema for keys, schema in found.values()}
    return {"additionalProperties": False, "patternProperties": patterns}


def schema_of(value: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of a default value at this path."""
    name = path[-1] if path else ""
    match value:
        case dict() if path == ("networkPolicy", "monitoring"):
            found: dict[str, Any] = dict(TEXTS)
        case dict() if name in FREE:
            found = dict(FREE[name])
        case dict():
            properties = {key: schema_of(inner, (*path, key)) for key, inner in value.items()}
            found = {"type": "object", "additionalProperties": False, "properties": properties}
        case bool():
            found = {"type": "boolean"}
        case int():
            found = {"type": "integer"}
        case list():
            found = {"type": "array"}
        case _:
            found = {"type": "string"}
    if name == "settings":
        found |= settings_of(SETTINGS[path[-2]])
    if path == ("executor", "unmanaged"):
        found = unmanaged_schema()
    return found | RULES.get(name, {})


def text() -> str:
    """The file."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    # A chart that contains this one passes its own `global` down.
    schema = schema_of(values)
    schema["properties"]["global"] = {"type": "object"}
    return json.dumps({"$schema": "https://json-schema.org/draft-07/schema#", **schema}, indent=1) + "\n"


if __name__ == "__main__":
    (CHART / "values.schema.json").write_text(text())
