"""Options, markers and fixtures of every suite. Nothing imports this file; shared code is in tests/support."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.scripts import Handler, Play, play_script
from tests.support.servers import nats_server, redis_server

from tests.support.profiles import load_profile

TESTS = Path(__file__).parent
SERVER_FIXTURES = {"nats_url", "redis_url"}
SUITES_WITH_SOCKETS = ("contract", "system")

load_profile()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what conversations answered into their files")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a real server, and let it and the suites that are about the outside use inet sockets."""
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)
        suite = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if suite in SUITES_WITH_SOCKETS or item.get_closest_marker("server"):
            item.add_marker(pytest.mark.enable_socket)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what writes the kernel where this user could not, and what is for the virtual machine outside of it."""
    if item.get_closest_marker("kernel") and os.geteuid() != 0:
        pytest.skip("writing cgroups needs root")
    if item.get_closest_marker("vm") and "COLO_KERNEL_LAB" not in os.environ:
        pytest.skip("runs inside the kernel lab: just kernel-lab pytest tests/kernel")


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """The address of a nats-server with JetStream, shared by the session: use names of your own for streams."""
    with nats_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a redis-server, shared by the session: use a key prefix of your own."""
    with redis_server() as server:
        yield server.url


@pytest.fixture
def play(pytestconfig: pytest.Config) -> Play:
    """Play a conversation file against a handler; with --rewrite, write the answers into it."""
    rewrite = bool(pytestconfig.getoption("--rewrite"))

    def play_file(path: Path, handler: Handler) -> None:
        play_script(path, handler, rewrite=rewrite)

    return play_file
