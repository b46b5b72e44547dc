"""The commands `colo admin credentials`: who is who on NATS and Redis, rotated and revoked without a stop."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter
from msgspec import structs

from colo_cli.failure import Failure
from colo_cli.file_lock import alone_in
from colo_cli.output import Output, print_data, print_table
from colo_common.model.invalid import InvalidInput

__all__ = ["add_node", "add_role", "init", "kubernetes", "list_", "permissions", "revoke", "rotate"]

Directory = Annotated[str, Parameter(name=["--directory", "-d"])]

_DIRECTORY: Final = "/etc/colo/credentials"
_RELOAD: Final = "let the servers read it: nats-server --signal reload, redis-cli ACL LOAD"
_KEYS_MOST: Final = 2


def init(*, directory: Directory = "") -> int:
    """Make a user of NATS for each role, one of Redis for each service that stores, and the files that the servers read.

    Each program gets ROLE.nkey (nats_nkey_file) and, where it stores, ROLE.redis-password (redis_user ROLE, redis_password_file).

    Args:
        directory: Where everything is kept (COLO_CREDENTIALS, else /etc/colo/credentials); only its owner can read it.
    """
    from colo_cli import credentials_store as store
    from colo_cli.bus_rights import ROLES

    path = store.made(_path(directory))
    with alone_in(path):
        if (path / store.USERS_FILE).exists():
            raise Failure(f"directory: has users already; `rotate` gives them new keys (got {path})", 2)
        users = [store.with_new_secrets(path, store.new_user(role)) for role in ROLES]
        store.write_users(path, users)
    print(f"{len(users)} users are in {path}")
    print(f"in nats.conf:   include ./{store.NATS_FILE}   (a path from the folder of nats.conf)")
    print(f"in redis.conf:  aclfile {path / store.REDIS_FILE}")
    return 0


def add_node(*node: str, directory: Directory = "") -> int:
    """Make the two users of each node, collector and executor, who may speak for that node alone.

    Args:
        node: Names of nodes.
        directory: Where everything is kept (COLO_CREDENTIALS, else /etc/colo/credentials).
    """
    from colo_cli import credentials_store as store
    from colo_cli.bus_rights import NODE_ROLES

    if not node:
        raise Failure("give the name of at least one node", 2)
    path = _path(directory)
    try:
        wanted = [store.new_user(role, name) for name in dict.fromkeys(node) for role in NODE_ROLES]
    except InvalidInput as error:
        raise Failure(str(error), 2) from error
    with alone_in(path):
        users = store.read_users(path)
        known = {user.name for user in users}
        twice = [user.node for user in wanted if user.name in known]
        if twice:
            raise Failure(
                f"node: has its users already, and nothing was changed; `rotate` gives new keys (got {twice[0]})"
            )
        added = [store.with_new_secrets(path, user) for user in wanted]
        store.write_users(path, [*users, *added])
    for user in added:
        print(f"{user.name}: copy {path / f'{user.name}.nkey'} to {user.node} for its {user.role} (nats_nkey_file)")
    print(_RELOAD, file=sys.stderr)
    return 0


def add_role(*role: str, directory: Directory = "") -> int:
    """Make the users of roles that have none: those of a later version, and those that were revoked.

    Args:
        role: Names of roles; without one all that have no user.
        directory: Where everything is kept (COLO_CREDENTIALS, else /etc/colo/credentials).
    """
    from colo_cli import credentials_store as store
    from colo_cli.bus_rights import ROLES

    path = _path(directory)
    for name in role:
        if name not in ROLES:
            raise Failure(f"role: must be one of {', '.join(ROLES)} (got {name})", 2)
    with alone_in(path):
        users = store.read_users(path)
        known = {user.name for user in users}
        twice = [name for name in role if name in known]
        if twice:
            raise Failure(
                f"role: has its user already, and nothing was changed; `rotate` gives new keys (got {twice[0]})"
            )
        wanted = dict.fromkeys(role) if role else [name for name in ROLES if name not in known]
        added = [store.with_new_secrets(path, store.new_user(name)) for name in wanted]
        store.write_users(path, [*users, *added])
    for made in added:
        print(f"{made.name}: {path / f'{made.name}.nkey'} (nats_nkey_file)")
    if not added:
        print("every role has its user")
    print(_RELOAD, file=sys.stderr)
    return 0


def rotate(*user: str, finish: bool = False, directory: Directory = "") -> int:
    """Give users new keys and passwords. The old ones hold beside them until `--finish`.

    First `rotate USER`, reload the servers, copy the new files to their programs, which take them within seconds and without a
    restart. Then `rotate USER --finish`, and reload again: only the new ones are let in.

    Args:
        user: Names of users; all of them without one.
        finish: End the rotation.
        directory: Where everything is kept (COLO_CREDENTIALS, else /etc/colo/credentials).
    """
    from colo_cli import credentials_store as store

    path = _path(directory)
    with alone_in(path):
        users = store.read_users(path)
        chosen = store.chosen_of(users, user) if user else {each.name for each in users}
        for each in users:
            if each.name in chosen and not finish and len(each.keys) >= _KEYS_MOST:
                raise Failure(
                    f"user: is being rotated; `--finish` ends that first, and nothing was changed (got {each.name})"
                )
        changed = []
        for each in users:
            if each.name not in chosen:
                changed.append(each)
            elif finish:
                changed.append(structs.replace(each, keys=each.keys[-1:], passwords=each.passwords[-1:]))
            else:
                changed.append(store.with_new_secrets(path, each))
        store.write_users(path, changed)
    who = "1 user has" if len(chosen) == 1 else f"{len(chosen)} users have"
    print(f"{who} {'the newest key alone' if finish else 'a new and an old key'}")
    print(_RELOAD, file=sys.stderr)
    return 0


def revoke(*user: str, directory: Directory = "") -> int:
    """Let users in no longer; a reload of the servers ends their connections. `add-role` and `add-node` make new ones.

    Args:
        user: Names of users, or of nodes, which mean both users of the node.
        directory: Where everything is kept (COLO_CREDENTIALS, else /etc/colo/credentials).
    """
    if not user:
        raise Failure("give at least one user; colo admin credentials list shows them", 2)
    from colo_cli import credentials_store as store

    path = _path(directory)
    with alone_in(path):
        users = store.read_users(path)
        chosen = store.chosen_of(users, user)
        store.write_users(path, [each for each in users if each.name not in chosen])
        for name in sorted(chosen):
            for kind in ("nkey", "redis-password"):
                (path / f"{name}.{kind}").unlink(missing_ok=True)
    for name in sorted(chosen):
        print(f"{name} is revoked")
    print(_RELOAD, file=sys.stderr)
    return 0


def list_(*, output: Output = "table", directory: Directory = "") -> int:
    """List the users.

    Args:
        output: table, json or yaml.
        directory: Where everything is kept (COLO_CREDENTIALS, else /etc/colo/credentials).
    """
    from colo_cli import credentials_store as store

    users = store.read_users(_path(directory))
    if output != "table":
        print_data([structs.asdict(user) for user in users], output)
        return 0
    rows = [
        [
            user.name,
            user.role,
            user.node,
            "yes" if user.passwords else "",
            "being rotated" if len(user.keys) > 1 else "good",
        ]
        for user in users
    ]
    print_table(["USER", "ROLE", "NODE", "REDIS", "STATE"], rows, "no users")
    return 0


def kubernetes(
    *, prefix: str = "colo-credentials", namespace: str = "", redis_ha: bool = False, directory: Directory = ""
) -> int:
    """Print Secrets of Kubernetes for the chart: `colo admin credentials kubernetes --namespace colo | kubectl apply -f -`.

    Args:
        prefix: How their names begin (credentials.prefix of the chart).
        namespace: Their namespace; without it that of kubectl.
        redis_ha: Let the default user of Redis in with the administrator's password, as the chart redis-ha needs it.
        directory: Where everything is kept (COLO_CREDENTIALS, else /etc/colo/credentials).
    """
    from colo_cli import credentials_store as store
    from colo_cli.credentials_kubernetes import secrets_of

    path = _path(directory)
    print_data(secrets_of(path, store.read_users(path), prefix, namespace, redis_ha=redis_ha), "yaml")
    return 0


def permissions(*, node: str = "NODE", output: Output = "table") -> int:
    """Print what each role may publish and subscribe to on NATS; everything else is refused.

    Args:
        node: The name of the node in the subjects of a node's programs.
        output: table, json or yaml.
    """
    from colo_cli.bus_rights import NODE_ROLES, ROLES, rights_of

    try:
        found = {role: rights_of(role) for role in ROLES}
        found |= {role: rights_of(role, node.lower()) for role in NODE_ROLES}
    except InvalidInput as error:
        raise Failure(str(error), 2) from error
    if output != "table":
        print_data({role: structs.asdict(rights) for role, rights in found.items()}, output)
        return 0
    rows = []
    for role, rights in found.items():
        rows += [[role, "publish", subject] for subject in rights.publish]
        rows += [[role, "subscribe", subject] for subject in rights.subscribe]
    print_table(["ROLE", "MAY", "SUBJECT"], rows, "nobody may anything")
    return 0


def _path(directory: str) -> Path:
    return Path(directory or os.environ.get("COLO_CREDENTIALS") or _DIRECTORY)
