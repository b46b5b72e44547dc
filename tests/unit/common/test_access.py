"""Addresses and files of the servers: what is taken, and the sentence that names what is not."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path
from urllib.parse import urlparse

import pytest
from nats.aio.client import Server
from redis.exceptions import AuthenticationError

from colo_common.adapters.nats_access import NatsAccess, reconnects
from colo_common.adapters.redis_access import RedisAccess, SentinelAddress
from colo_common.adapters.redis_client import redis_client
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.access import redis_replicas_of
from colo_common.runtime.settings import Common, load

MISSING = "/nowhere/file"


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("nats://a:4222", ("nats://a:4222",)),
        ("tls://a:4222, b:4223,", ("tls://a:4222", "tls://b:4223")),
        ("a,nats://u:p@b", ("nats://a", "nats://u:p@b")),
    ],
)
def test_addresses_of_a_cluster(url: str, servers: tuple[str, ...]) -> None:
    assert NatsAccess(url=url).servers == servers
    assert ":p@" not in NatsAccess(url=url).shown


@pytest.mark.parametrize(
    ("access", "field", "rule"),
    [
        (NatsAccess(url=""), "nats_url", "at least one"),
        (NatsAccess(url="nats://a:4222,http://b"), "nats_url", "separated by commas"),
        (NatsAccess(url="nats://a:x"), "nats_url", "separated by commas"),
        (NatsAccess(url="a", creds_file="c", user="u"), "nats_user", "together with nats_creds_file"),
        (NatsAccess(url="a", password_file="p"), "nats_password_file", "together with nats_user"),
        (NatsAccess(url="a", user="u", password_file=MISSING), "nats_password_file", "may read"),
        (NatsAccess(url="a", nkey_file=MISSING), "nats_nkey_file", "may read"),
        (NatsAccess(url="a", ca_file=MISSING), "nats_ca_file", "PEM"),
        (NatsAccess(url="a", cert_file="c"), "nats_cert_file", "together with nats_key_file"),
        (NatsAccess(url="a", cert_file=MISSING, key_file=MISSING), "nats_cert_file", "with its key"),
        (RedisAccess(url="http://a"), "redis_url", "must begin with one of"),
        (RedisAccess(url="redis://a", user="u"), "redis_user", "redis_password_file"),
        (RedisAccess(url="redis://a", password_file=MISSING), "redis_password_file", "may read"),
        (RedisAccess(url="redis://a", cert_file="c"), "redis_cert_file", "together with redis_key_file"),
        (RedisAccess(url="redis+sentinel://a:26379"), "redis_url", "/NAME"),
        (RedisAccess(url="redis+sentinel://a:x/n"), "redis_url", "/NAME"),
        (RedisAccess(url="redis+sentinel://a/n?database=1"), "redis_url", "/NAME"),
    ],
)
def test_what_is_wrong_with_an_access_is_named(access: NatsAccess | RedisAccess, field: str, rule: str) -> None:
    take = access.options if isinstance(access, NatsAccess) else partial(redis_client, access, name="test")
    with pytest.raises(InvalidInput, match=f"(?s){field}.*{rule}"):
        take()


def test_a_primary_that_sentinels_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    password = tmp_path / "password"
    password.write_text("from a file\n")
    access = RedisAccess(url="redis+sentinel://u:s%2Fs@a,b:26380,[::1]:26381/colo?db=2", password_file=str(password))
    assert access.sentinel() == SentinelAddress(
        sentinels=(("a", 26379), ("b", 26380), ("::1", 26381)),
        primary="colo",
        db=2,
        is_tls=False,
        user="u",
        password="s/s",
    )
    provider = access.options()["credential_provider"]
    assert provider.get_credentials() == ("u", "from a file")
    with caplog.at_level("WARNING"):
        assert asyncio.run(provider.get_credentials_async()) == ("u", "from a file")
    assert not caplog.records, "nothing is said at each connection"
    # A rotated password is the next connection's.
    password.write_text("another\n")
    assert provider.get_credentials() == ("u", "another")
    password.unlink()
    with pytest.raises(AuthenticationError, match="redis_password_file"):
        provider.get_credentials()
    assert "s%2Fs" not in access.shown
    assert RedisAccess(url="unix:///run/redis.sock?db=0").sentinel() is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 0),
        ({"COLO_REDIS_URL": "rediss://redis:6379/0"}, 0),
        ({"COLO_REDIS_URL": "redis+sentinel://a,b/primary"}, 1),
        ({"COLO_REDIS_URL": "rediss+sentinel://a:26380/primary?db=2"}, 1),
        ({"COLO_REDIS_URL": "redis+sentinel://a/primary", "COLO_REDIS_MIN_REPLICAS": "0"}, 0),
        ({"COLO_REDIS_URL": "redis+sentinel://a/primary", "COLO_REDIS_MIN_REPLICAS": "2"}, 2),
        ({"COLO_REDIS_MIN_REPLICAS": "1"}, 1),
    ],
)
def test_behind_sentinels_a_write_needs_a_replica_unless_somebody_says_otherwise(
    environ: dict[str, str], expected: int
) -> None:
    assert redis_replicas_of(load(Common, "jobs", (), environ)) == expected


def test_clients_that_lost_a_server_come_back_at_random_moments_within_a_growing_bound() -> None:
    servers = [Server(urlparse("nats://a"), reconnects=9), Server(urlparse("nats://b"), reconnects=2)]
    waits_s = []
    for seed in range(200):
        chosen, wait_s = reconnects(random.Random(seed))(servers, None)
        assert chosen is servers[1]
        waits_s.append(wait_s)
    assert 0 <= min(waits_s) < 0.05
    assert 0.75 < max(waits_s) <= 0.8
    assert len(set(waits_s)) > 190
    never = [Server(urlparse("nats://a"), reconnects=1_000)]
    assert max(reconnects(random.Random(seed))(never, None)[1] for seed in range(200)) <= 5.0
