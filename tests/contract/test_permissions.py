"""Who may say and hear what on NATS and Redis: every pair of role and subject is tried on real servers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import nats
import pytest
import redis.asyncio
from nats.aio.client import Client

from colo_cli.bus_rights import NODE_ROLES, ROLES, BusRights, rights_of, user_of
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_client import ColoClient
from colo_common.adapters.nats_nkey import inbox_of, read_nkey
from colo_common.events.node import NodeUsageSampled
from colo_common.events.registry import EVENTS, REQUESTS, STREAMS, event_of
from colo_common.events.subjects import matches
from colo_common.ports import Outgoing
from tests.support.secured import Secured, secured
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

MINE: Final = "node-1"
OTHER: Final = "node-2"
EVERYBODY: Final = (*((role, "") for role in ROLES), *((role, MINE) for role in NODE_ROLES))
#: User -> subject -> what the servers let him do there.
TRIED: Final[dict[str, dict[str, str]]] = {}
_SERVICES: Final = ("jobs", "gateway", "restrictions", "policy", "collector", "executor")
_VIOLATION: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured"), (MINE, OTHER)) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def _matrix() -> Iterator[None]:
    """Print at the end what the servers let each user publish (P) and subscribe to (S), when every one was tried here."""
    yield
    names = [user_of(*each) for each in EVERYBODY]
    if not TRIED.keys() >= set(names):
        return
    lines = [f"{number:>3} {user}" for number, user in enumerate(names, 1)]
    lines += ["", " ".join(f"{number:>2}" for number in range(1, len(names) + 1))]
    for subject in subjects():
        marks = [TRIED[user][subject] or "." for user in names]
        lines.append(f"{' '.join(f'{mark:>2}' for mark in marks)}  {subject}")
    for verb, mark in (("publish", "P"), ("subscribe", "S")):
        pairs = [mark in TRIED[user][subject] for user in names for subject in subjects()]
        lines.append(f"{verb}: {sum(pairs)} pairs allowed, {len(pairs) - sum(pairs)} refused, all of them tried")
    print("\n" + "\n".join(lines))  # noqa: T201


def subjects() -> list[str]:
    """Every subject of the registry for two nodes and for some services, and the questions to JetStream that change or read it."""
    found = []
    for row in (*EVENTS, *REQUESTS):
        for node in (MINE, OTHER):
            for service in _SERVICES:
                given = {"node": node, "service": service}
                found.append(row.subject.of(**{name: given[name] for name in row.subject.parameters}))
    for stream in STREAMS:
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "SNAPSHOT", "MSG.GET", "MSG.DELETE"):
            found.append(f"$JS.API.STREAM.{verb}.{stream.value}")
        found.append(f"$JS.API.CONSUMER.DELETE.{stream.value}.colo-jobs-evt")
        found.append(f"$JS.ACK.{stream.value}.colo-jobs-evt.1.1.1.1.0")
    for node in (MINE, OTHER):
        name = f"colo-executor-{node}-cmd"
        found += [
            f"$JS.API.CONSUMER.CREATE.COLO_CMD.{name}.colo.v1.cmd.node.{node}.>",
            f"$JS.API.CONSUMER.CREATE.COLO_CMD.{name}.colo.v1.cmd.node.*.>",
            f"$JS.API.CONSUMER.MSG.NEXT.COLO_CMD.{name}",
            f"$JS.ACK.COLO_CMD.{name}.1.1.1.1.0",
        ]
    found += [f"{inbox_of(user_of(role, node))}.x.y" for role, node in EVERYBODY]
    found += ["$SYS.REQ.SERVER.PING", "$SYS.SERVER.ID.CLIENT.AUTH.ERR", "$SYS.ACCOUNT.$G.CONNECT", "anything.else"]
    return list(dict.fromkeys(found))


@asynccontextmanager
async def connected(servers: Secured, role: str, node: str = "") -> AsyncIterator[tuple[Client, set[tuple[str, str]]]]:
    """A client of the role, and what the server refused it: (publish or subscription, subject)."""
    refused: set[tuple[str, str]] = set()

    async def note(error: Exception) -> None:
        found = _VIOLATION.search(str(error))
        if found:
            refused.add((found[1].lower(), found[2]))

    user = user_of(role, node)
    seed = read_nkey(str(servers.folder / f"{user}.nkey")).seed
    client = ColoClient()
    await client.connect(
        servers.nats.url, nkeys_seed_str=seed, inbox_prefix=inbox_of(user), error_cb=note, allow_reconnect=False
    )
    try:
        yield client, refused
    finally:
        await client.close()


async def settled(client: Client) -> None:
    """Return when the server has answered everything that was sent: its refusals come before the answer to a ping."""
    await client.flush(timeout=60)


def may(rights: BusRights, verb: str, subject: str) -> bool:
    patterns = rights.publish if verb == "publish" else rights.subscribe
    return any(matches(pattern, subject) for pattern in patterns)


@pytest.mark.parametrize(("role", "node"), EVERYBODY, ids=[user_of(*each) for each in EVERYBODY])
async def test_every_pair_is_allowed_or_refused_as_the_rights_say(servers: Secured, role: str, node: str) -> None:
    rights = rights_of(role, node)
    tried = subjects()
    async with connected(servers, role, node) as (client, refused):
        for subject in tried:
            await client.publish(subject, b"")
        await settled(client)
        for subject in tried:
            await client.subscribe(subject)
        await settled(client)
    # The library tells the server's refusals in small letters.
    forbidden = {
        (verb, each.lower()) for verb in ("publish", "subscription") for each in tried if not may(rights, verb, each)
    }
    assert refused == forbidden
    TRIED[user_of(role, node)] = {
        each: "".join(
            mark for verb, mark in (("publish", "P"), ("subscription", "S")) if (verb, each.lower()) not in refused
        )
        for each in tried
    }


async def test_what_the_rights_must_never_say(servers: Secured) -> None:
    del servers
    everything = subjects()
    for role in NODE_ROLES:
        rights = rights_of(role, MINE)
        published = [each for each in everything if may(rights, "publish", each)]
        received = [each for each in everything if may(rights, "subscription", each)]
        assert not [each for each in (*published, *received) if OTHER in each.split(".") or f"-{OTHER}" in each]
        assert not [
            each
            for each in published
            if re.search(r"STREAM\.(CREATE|UPDATE|DELETE|PURGE|SNAPSHOT|MSG)|CONSUMER\.DELETE", each)
        ]
        assert not [each for each in published if ".cmd." in each and not each.startswith("$JS")]
        assert not [each for each in published if ".req." in each]
    listener = rights_of("listener")
    assert not [each for each in everything if may(listener, "publish", each)]
    assert all(each.startswith("colo.v1.evt.") for each in everything if may(listener, "subscription", each))
    for role in ROLES:
        if role not in ("admin",):
            published = [each for each in everything if may(rights_of(role), "publish", each)]
            assert not [
                each for each in published if re.search(r"STREAM\.(CREATE|UPDATE|DELETE|PURGE)|CONSUMER\.DELETE", each)
            ]
        others = [user_of(*each) for each in EVERYBODY if user_of(*each) != role]
        assert not any(may(rights_of(role), "subscription", f"{inbox_of(other)}.x.y") for other in others)


async def test_nobody_is_let_in_without_a_key_that_is_known(servers: Secured) -> None:
    import nkeys

    strange = nkeys.encode_seed(b"s" * 32, nkeys.PREFIX_BYTE_USER).decode()
    for given in ({}, {"user": "jobs", "password": "x"}, {"token": "x"}, {"nkeys_seed_str": strange}):
        client = Client()
        try:
            with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
                await client.connect(servers.nats.url, allow_reconnect=False, **given)
        finally:
            # The library leaves the socket of a client that is not let in open.
            await client.close()


async def test_what_the_server_refuses_a_process_is_counted(servers: Secured) -> None:
    nkey_file = str(servers.folder / f"{user_of('collector', MINE)}.nkey")
    bus = NatsBus(NatsAccess(url=servers.nats.url, nkey_file=nkey_file), name="collector", streams={})
    counted: list[str] = []
    bus.on_refused(counted.append)
    bus.start()
    try:
        await bus.connected(30)
        for node in (MINE, OTHER):
            subject = event_of(NodeUsageSampled).subject.of(node=node)
            await bus.publish([Outgoing(subject=subject, data=b"", durable=False)])

        async def is_counted() -> bool:
            return bool(counted)

        await eventually(is_counted, "the refusal")
        assert counted == ["publish"], "a node speaks for itself, and for no other"
    finally:
        await bus.close()


async def test_an_answer_goes_to_who_asked_and_once(servers: Secured) -> None:
    async with connected(servers, "jobs") as (jobs, refused), connected(servers, "gateway") as (gateway, _):
        kept = []

        async def answer(message: nats.aio.msg.Msg) -> None:
            kept.append(message)
            await message.respond(b"1")

        await jobs.subscribe("colo.v1.req.jobs.get", cb=answer)
        await settled(jobs)
        assert (await gateway.request("colo.v1.req.jobs.get", b"", timeout=60)).data == b"1"
        await kept[0].respond(b"2")
        await jobs.publish(f"{inbox_of('gateway')}.x.y", b"forged")
        await settled(jobs)
        assert len(refused) == 2


async def test_each_service_has_its_own_keys_in_redis(servers: Secured, tmp_path: Path) -> None:
    del tmp_path
    clients = {
        role: redis.asyncio.from_url(
            servers.redis.url, username=role, password=(servers.folder / f"{role}.redis-password").read_text().strip()
        )
        for role in ("jobs", "scheduler", "evictor", "gateway", "overcommit", "admin")
    }
    own = {
        "jobs": ("job", "job-spec", "job-missed", "jobs-store", "replica-page", "outbox-jobs", "running-jobs"),
        "scheduler": ("ledger:node:n1", "reservation", "outbox-scheduler", "running-scheduler"),
        "evictor": ("evictor-node", "outbox-evictor", "running-evictor"),
        "gateway": ("restrictions", "outbox-restrictions", "policy", "outbox-policy"),
        "overcommit": ("outbox-overcommit", "running-overcommit"),
    }
    try:
        for role, client in clients.items():
            for owner, kinds in own.items():
                for kind in (*kinds, f"{kinds[0]}:unreadable"):
                    written = client.hset(f"colo:v1:{kind}", "x", "1")
                    if role in (owner, "admin"):
                        await written
                        continue
                    with pytest.raises(redis.exceptions.NoPermissionError):
                        await written
            if role != "admin":
                for command in (
                    ("FLUSHALL",),
                    ("CONFIG", "GET", "*"),
                    ("ACL", "LIST"),
                    ("KEYS", "*"),
                ):
                    with pytest.raises(redis.exceptions.NoPermissionError):
                        await client.execute_command(*command)
                script = "return redis.call('HGET', 'colo:v1:' .. ARGV[1], 'x')"
                with pytest.raises(redis.exceptions.ResponseError, match=r"(?i)ACL|permission"):
                    await client.eval(script, 0, "reservation" if role != "scheduler" else "job")
        for given in ({}, {"username": "jobs", "password": "wrong"}):
            stranger = redis.asyncio.from_url(servers.redis.url, **given)
            with pytest.raises(redis.exceptions.ConnectionError):
                await stranger.ping()
            await stranger.connection_pool.disconnect()
            await stranger.aclose()
    finally:
        for client in clients.values():
            await client.aclose()
