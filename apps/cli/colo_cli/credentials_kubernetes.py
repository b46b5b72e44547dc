"""Credentials as Secrets of Kubernetes, one for each reader, under the names that the chart mounts."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from colo_cli.bus_config import BusUser, redis_users
from colo_cli.bus_rights import NODE_ROLES
from colo_cli.credentials_store import NATS_FILE, REDIS_FILE
from colo_cli.failure import Failure

__all__ = ["secrets_of"]

_ADMIN: Final = "admin"
# A second user of the gateway: its key is one more file of the gateway's secret.
_AUDITOR: Final = "auditor"


def secrets_of(
    folder: Path, users: Sequence[BusUser], prefix: str, namespace: str, *, redis_ha: bool
) -> dict[str, Any]:
    """A List of Secrets: PREFIX-ROLE has `nkey` and, where the role stores, `redis-password`; PREFIX-collector and -executor have
    NODE.nkey for each node; PREFIX-gateway has `auditor-nkey` as well; PREFIX-nats and PREFIX-redis are what the servers read.

    `redis_ha`: Redis lets its default user in with the administrator's password (`admin-password`), by which the chart redis-ha
    runs its probes, replicas and sentinels. Raises Failure for a file that is missing.
    """
    found: dict[str, dict[str, str]] = {}
    auditors: dict[str, str] = {}
    for user in users:
        if user.role in NODE_ROLES:
            found.setdefault(user.role, {})[f"{user.node}.nkey"] = _read(folder / f"{user.name}.nkey")
            continue
        if user.role == _AUDITOR:
            auditors["auditor-nkey"] = _read(folder / f"{user.name}.nkey")
            continue
        found[user.role] = {"nkey": _read(folder / f"{user.name}.nkey")}
        if user.passwords:
            found[user.role]["redis-password"] = _read(folder / f"{user.name}.redis-password")
    if "gateway" in found:
        found["gateway"] |= auditors
    found["nats"] = {NATS_FILE: _read(folder / NATS_FILE)}
    found["redis"] = {REDIS_FILE: _read(folder / REDIS_FILE)}
    if redis_ha:
        admin = next((user for user in users if user.name == _ADMIN), None)
        if admin is None:
            raise Failure("directory: has no user admin, whose password the chart redis-ha needs", 2)
        found["redis"] = {
            REDIS_FILE: redis_users(users, default=admin),
            "admin-password": _read(folder / f"{_ADMIN}.redis-password").strip(),
        }
    items = [_secret(f"{prefix}-{name}", namespace, files) for name, files in sorted(found.items())]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _secret(name: str, namespace: str, files: dict[str, str]) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in sorted(files.items())}
    labels = {"app.kubernetes.io/name": "colo", "app.kubernetes.io/component": "credentials"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, **where, "labels": labels},
        "type": "Opaque",
        "data": data,
    }


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, ValueError) as error:
        raise Failure(f"directory: must hold a readable {path.name} ({error})", 2) from error
