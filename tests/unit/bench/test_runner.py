"""The runner of benchmarks: each has the time that it needs, and one that takes longer may clean up before it is killed."""

import ast
import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from tests.bench import __main__ as bench
from tests.bench import bench_online, bench_reflex, termination


@pytest.mark.parametrize("name", bench.SAY_HOW_LONG)
def test_a_benchmark_that_is_told_how_much_to_measure_may_take_as_long(name: str) -> None:
    module = bench.importlib.import_module(f"tests.bench.bench_{name}")
    for arguments in ((), bench.QUICK[name]):
        assert bench.limit_s(name, arguments) >= bench.MARGIN * module.length_s(arguments)


def test_the_defaults_are_what_is_asked_and_take_longer_than_the_limit_of_others() -> None:
    ways, rounds, asked = bench_online.options([])
    assert len(ways) * rounds * asked.seconds > bench.LIMIT_S
    assert bench.limit_s("online", ()) > len(ways) * rounds * asked.seconds
    assert bench_reflex.options([]).rounds == 1_000
    assert bench.limit_s("online", ("--rounds", "30")) > 9 * bench.limit_s("online", ())


def test_whoever_measures_rounds_of_seconds_says_how_long_that_is() -> None:
    found = []
    for name in bench.names():
        tree = ast.parse((bench.FOLDER / f"bench_{name}.py").read_text())
        words = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        says = any(isinstance(node, ast.FunctionDef) and node.name == "length_s" for node in tree.body)
        if says or {"--rounds", "--seconds"} <= words:
            found.append(name)
    assert tuple(found) == bench.SAY_HOW_LONG


def test_the_executor_is_measured_with_its_service_its_reflex_and_what_online_work_feels() -> None:
    assert bench.chosen(["executor"]) == ["executor", "executor_service", "reflex", "online"]
    assert bench.chosen(["executor"], has_company=False) == ["executor"]


class Endless:
    """A process that ends when it gets the last of `ends_by`."""

    got: ClassVar[list[str]] = []

    def __init__(self, command: Sequence[str], cwd: Path) -> None:
        self.got.clear()
        self._ends_by = command[0]

    def __enter__(self) -> "Endless":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.poll() is not None

    def poll(self) -> int | None:
        return -15 if self._ends_by in self.got else None

    def wait(self, timeout: float) -> int:
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self._ends_by, timeout)
        return -15

    def terminate(self) -> None:
        self.got.append("SIGTERM")

    def kill(self) -> None:
        self.got.append("SIGKILL")


@pytest.mark.parametrize(("ends_by", "got"), [("SIGTERM", ["SIGTERM"]), ("SIGKILL", ["SIGTERM", "SIGKILL"])])
def test_one_that_takes_too_long_is_asked_to_end_before_it_is_killed(
    monkeypatch: pytest.MonkeyPatch, ends_by: str, got: list[str]
) -> None:
    monkeypatch.setattr(bench.subprocess, "Popen", Endless)
    assert bench.run([ends_by], 1.0) is None
    assert Endless.got == got


def test_a_benchmark_that_is_asked_to_end_cleans_up_first() -> None:
    cleaned: list[str] = []

    async def measure() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("its groups are gone")

    with pytest.raises(SystemExit) as ended:
        termination.run(measure())
    assert ended.value.code == termination.TERMINATED
    assert cleaned
