"""What a person mistypes in an address, or points at another port, is answered in one sentence that names it."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis.exceptions

from colo_cli.main import main
from colo_common.adapters.nats_check import check_nats
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.adapters.redis_client import redis_error
from colo_common.runtime.access import nats_access_of
from colo_common.runtime.settings import Common

AWAY = "nats://127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["admin", "check", "--nats-url", "nats://[::1"], "nats_url: must be addresses such as nats://host:4222"),
        (["doctor", "--cluster", "--nats-url", "nats://[::1"], "nats_url: must be addresses such as nats://host:4222"),
        (["doctor", "--cluster", "--nats-url", "nats://h:x"], "nats_url: must be addresses such as nats://host:4222"),
        (
            ["doctor", "--cluster", "--redis-url", "redis+sentinel://h:1/"],
            "redis_url: must look like redis+sentinel://",
        ),
        (["doctor", "--cluster", "--stream-replicas", "2"], "--stream-replicas: must be one of 1, 3, 5 (got "),
        (["get", "nodes", "--api", "http://[::1"], "api: must be an address such as http://127.0.0.1:8088"),
        (["get", "nodes", "--api", "http://h:x"], "api: must be an address such as http://127.0.0.1:8088"),
        (["get", "nodes", "--api", "http://:80"], "api: must be an address such as http://127.0.0.1:8088"),
    ],
)
def test_a_wrong_address_is_named(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        # A coroutine that nobody awaits.
        warnings.simplefilter("error", RuntimeWarning)
        assert main(words) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


@contextmanager
def a_server(says: bytes) -> Iterator[int]:
    """A server that says the same to everybody; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(says)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    "says",
    [
        b'INFO {"server_id":"x"}\r\n',
        OK + b'{"a": 1}',
        OK + b"[]",
        OK + b"word",
        OK + b'{"now": 7, "config": 3}',
        OK + b'{"now": "2026-01-01T00:00:00Z", "config": {"sync_interval": null}}',
    ],
)
async def test_another_port_is_no_monitoring_port(says: bytes) -> None:
    with a_server(says) as port:
        url = f"http://127.0.0.1:{port}"
        checks = await check_nats(nats_access_of(Common(nats_url=AWAY)), StreamWish(), [url])
    details = [check.detail for check in checks if check.name == "nats-sync"]
    assert details == [f"{url} is no monitoring port of a NATS server, such as http://host:8222"]


async def test_what_has_to_be_added_to_be_told_the_syncs_of_nats_is_said_for_these_servers() -> None:
    access = nats_access_of(Common(nats_url="nats://127.0.0.1:1,127.0.0.1:2,[::1]:1"))
    (check,) = [check for check in await check_nats(access, StreamWish(), []) if check.name == "nats-sync"]
    assert check.ok is None
    assert "add --monitor http://127.0.0.1:8222,http://[::1]:8222 " in check.detail
    assert "sync_interval" in check.detail


def test_sentinels_that_are_away_are_told_without_the_objects_of_the_library() -> None:
    error = redis.exceptions.ConnectionError(
        "No master found for 'colo' : <Redis(<ConnectionPool(<Connection(port=1)>)>)>"
    )
    assert str(redis_error(error, "Redis")) == "Redis: No master found for 'colo'"
