"""Options, markers and fixtures of every suite. Nothing imports this file; shared code is in tests/support."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.left_out import OutcomesKept, refuse_unlisted
from tests.support.profiles import load_profile
from tests.support.scripts import Handler, Play, play_script
from tests.support.servers import in_ci, nats_server, redis_server

TESTS = Path(__file__).parent
SERVER_FIXTURES = {"nats_url", "redis_url"}
SUITES_WITH_SOCKETS = ("contract", "system")
SHARED_CLUSTER = "shared_colo"
SYSTEM_LIMIT_S = 300
"""When a test of whole processes is taken for one that hangs. On a busy machine each start of a process takes seconds."""

load_profile()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what conversations answered into their files")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the outcomes where the results are shown, which is not in a worker; keep what is compiled where all find it."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(OutcomesKept(), "outcomes-kept")
        if sys.dont_write_bytecode:
            _keep_bytecode(config.rootpath / ".pytest_cache" / "bytecode")


def _keep_bytecode(folder: Path) -> None:
    """Let workers and the hundreds of processes that tests start keep what they compile in a folder of the tests' own.

    Who sets PYTHONDONTWRITEBYTECODE wants no such files beside the sources. Without any, each of these processes compiles all that
    it imports again.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
    sys.dont_write_bytecode = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a real server, and let it and the suites that are about the outside use inet sockets.

    Files keep their tests together and are put into the order in which workers take them.
    """
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)
        suite = _suite(item.path)
        if suite in SUITES_WITH_SOCKETS or item.get_closest_marker("server"):
            item.add_marker(pytest.mark.enable_socket)
        if suite == "system" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SYSTEM_LIMIT_S))
    sharing = {item.path for item in items if SHARED_CLUSTER in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: _turn(item, sharing))


def pytest_collection_finish() -> None:
    """Keep the collector off what lives until the end: modules and thousands of tests, which each full pass would look at."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item, sharing: set[Path]) -> int:
    """Long files first, then those that share a cluster, which ends with the last of them in a worker, then the short ones.

    What waits for leases, windows and labs comes before all: the worlds of the simulation, which compute, fill what it leaves.
    """
    if item.get_closest_marker("failover") or item.get_closest_marker("slow"):
        return -1
    if item.path in sharing:
        return 1
    return {"system": 0, "sim": 0, "props": 2, "contract": 2}.get(_suite(item.path), 3)


@cache
def _suite(path: Path) -> str:
    """The folder below tests."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under CI=true let a skip fail that is not listed."""
    report = yield
    if in_ci():
        refuse_unlisted(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for a file that leaves itself out."""
    report = yield
    if in_ci():
        refuse_unlisted(report)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what writes the kernel where this user could not, and what is for the virtual machine outside of it."""
    if item.get_closest_marker("kernel") and os.geteuid() != 0:
        pytest.skip("writing cgroups needs root")
    if item.get_closest_marker("vm") and "COLO_KERNEL_LAB" not in os.environ:
        pytest.skip("runs inside the kernel lab: just kernel-lab pytest tests/kernel")


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Collect what a file leaves behind while it is that file's turn.

    A socket or a task in a cycle of garbage is an error when it is collected. Otherwise that is when some later file makes enough
    objects, and a test that did nothing fails for it. What is still in use then is of the session, and is not looked at again.
    """
    yield
    gc.collect()
    gc.freeze()


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
