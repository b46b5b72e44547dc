"""Screens of the commands that read: each command meets the answers that a lab once gave, on a terminal or in a pipe.

    python -m tests.support.cli_screens http://127.0.0.1:8088 get nodes

asks a running lab and keeps what it answered for that command; `pytest tests/scripts/cli --rewrite` then writes its screens.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final
from unittest import mock

from colo_cli.client import Client
from colo_cli.failure import CommandRefused
from colo_cli.main import main
from tests.support.scripts import Args, ScriptFailed

__all__ = ["CliScreens"]

ANSWERS: Final = Path(__file__).parents[1] / "scripts" / "cli" / "answers"
_ROOT: Final = Path(__file__).parents[2]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class CliScreens:
    """Answers `at WIDTHxHEIGHT COMMAND...` and `pipe COMMAND...` with what the command prints, its exit code last when not 0."""

    def answer(self, command: str, args: Args) -> str:
        if command == "at":
            width, _, height = args.word(0).partition("x")
            words = args.words[1:]
            with _replayed(words):
                shown = _typed(words, _Terminal(), {"COLUMNS": width, "LINES": height, "NO_COLOR": "1"})
            # What is wider is a name that nothing may cut.
            wide = [
                line
                for line in shown.splitlines()
                if len(line) > int(width) and " " in line.strip() and not line.startswith("stderr:")
            ]
            if wide:
                raise ScriptFailed(f"is wider than {width}: {wide}")
            return shown
        if command == "pipe":
            with _replayed(args.words):
                return _typed(args.words, io.StringIO(), {})
        return f"no such command: {command}"


def _typed(words: tuple[str, ...], stdout: io.StringIO, environment: dict[str, str]) -> str:
    """What a command prints, on standard error after that, with "~" for an empty line."""
    stderr = io.StringIO()
    given = {"TZ": "UTC", "PATH": os.environ["PATH"], **environment}
    with mock.patch.dict(os.environ, given, clear=True), redirect_stdout(stdout), redirect_stderr(stderr):
        time.tzset()
        here = Path.cwd()
        os.chdir(_ROOT)
        try:
            code = main(words)
        finally:
            os.chdir(here)
    time.tzset()
    text = stdout.getvalue() + "".join(f"stderr: {line}\n" for line in stderr.getvalue().splitlines())
    lines = [line.rstrip() or "~" for line in text.splitlines()]
    return "\n".join([*lines, *([f"exit code {code}"] if code else [])])


def _file_of(words: tuple[str, ...]) -> Path:
    slug = "-".join(word.strip("-").replace("/", "-") for word in words if word != "-f")
    return ANSWERS / f"{slug}.json"


@contextmanager
def _replayed(words: tuple[str, ...]) -> Iterator[None]:
    """Every call of the API gets the next recorded answer, which must be to this call."""
    path = _file_of(words)
    if not path.exists():
        raise ScriptFailed(f"has no recorded answers in {path.name}")
    recorded = json.loads(path.read_text())
    calls = iter(recorded["calls"])

    def call(client: Client, method: str, target: str, body: bytes | None = None, **headers: str) -> Any:
        del body, headers
        kept = next(calls, None)
        if kept is None or kept["call"] != f"{method} {target}":
            raise ScriptFailed(f"asks {method} {target}, recorded is {kept and kept['call']}")
        if "refused" in kept:
            raise CommandRefused(**kept["refused"])
        client.now_ms, client.clock_speed = kept["now_ms"], recorded["clock_speed"]
        return kept["answer"]

    with mock.patch.object(Client, "call", call):
        yield


def _record(api: str, words: tuple[str, ...]) -> None:
    calls: list[dict[str, Any]] = []
    asked = Client.call
    speed = 1.0

    def call(client: Client, method: str, target: str, body: bytes | None = None, **headers: str) -> Any:
        nonlocal speed
        try:
            answer = asked(client, method, target, body, **headers)
        except CommandRefused as refused:
            kept = {"sentence": str(refused), "status": refused.status, "code": refused.code, "field": refused.field}
            calls.append({"call": f"{method} {target}", "refused": kept})
            raise
        speed = client.clock_speed
        calls.append({"call": f"{method} {target}", "now_ms": client.now_ms, "answer": answer})
        return answer

    with mock.patch.object(Client, "call", call), mock.patch.dict(os.environ, {"COLO_API": api}):
        main(words)
    ANSWERS.mkdir(parents=True, exist_ok=True)
    kept = {"clock_speed": speed, "calls": calls}
    _file_of(words).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _record(sys.argv[1], tuple(sys.argv[2:]))
