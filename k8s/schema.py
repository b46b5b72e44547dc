"""values.schema.json of the chart, from its values.yaml: `python k8s/schema.py` writes it.

Every key of values.yaml is known and no other; a value has the type of its default. Settings are those of the service of that name;
other maps that are empty or free by nature take any names.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from colo_collector.settings import CollectorSettings
from colo_common.runtime.settings import keys_of
from colo_evictor.settings import EvictorSettings
from colo_executor.settings import ExecutorSettings
from colo_gateway.settings import GatewaySettings
from colo_jobs.settings import JobsSettings
from colo_overcommit.settings import OvercommitSettings
from colo_scheduler.settings import SchedulerSettings

CHART = Path(__file__).parent / "colo"
#: Maps whose names are the user's: settings, labels, resources of Kubernetes.
FREE = {"settings", "labels", "nodeSelector", "jobUsers", "clients", "monitoring.labels", "resources"}
#: Who has settings, and which: those of `nodes` are for both agents, so both must have them.
SETTINGS = {
    "gateway": keys_of(GatewaySettings).keys(),
    "jobs": keys_of(JobsSettings).keys(),
    "scheduler": keys_of(SchedulerSettings).keys(),
    "overcommit": keys_of(OvercommitSettings).keys(),
    "evictor": keys_of(EvictorSettings).keys(),
    "collector": keys_of(CollectorSettings).keys(),
    "executor": keys_of(ExecutorSettings).keys(),
    "nodes": keys_of(CollectorSettings).keys() & keys_of(ExecutorSettings).keys(),
}
#: They become environment variables.
SETTING = {"type": ["string", "number", "boolean"]}
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
    if name == "settings":
        names = "|".join(sorted(SETTINGS[path[-2]]))
        found |= {"additionalProperties": False, "patternProperties": {f"^({names})$": SETTING}}
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
