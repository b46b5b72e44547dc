"""values.schema.json of the chart, from its values.yaml: `python k8s/schema.py` writes it.

Every key of values.yaml is known and no other; a value has the type of its default. Maps that are empty or free by nature take any
names.
"""

import json
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "colo"
#: Maps whose names are the user's: settings, labels, resources of Kubernetes.
FREE = {"settings", "labels", "nodeSelector", "jobUsers", "clients", "monitoring.labels", "resources"}
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
    # They become environment variables.
    "settings": {"additionalProperties": {"type": ["string", "number", "boolean"]}},
    "stateDir": {"pattern": "^/"},
    "nodeFolder": {"pattern": "^(/.*)?$"},
    "streamDiskBytes": {"minimum": 0},
    "maxUnavailable": {"type": ["string", "integer"]},
    "interval": {"pattern": "^[0-9]+(ms|s|m)$"},
}


def schema_of(value: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of a default value at this path."""
    name = path[-1] if path else ""
    is_free = name in FREE or (path == ("networkPolicy", "monitoring"))
    match value:
        case dict() if is_free:
            found: dict[str, Any] = {"type": "object"}
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
