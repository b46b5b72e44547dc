"""A gateway of another version may answer otherwise than this command line knows: one sentence says so, whatever the command."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from colo_cli.client import Client
from colo_cli.examples import EXAMPLES
from colo_cli.main import main

OF_THIS_MACHINE = ("", "admin", "completion", "credentials", "doctor", "help", "lab", "node", "version")
"""Commands that ask no gateway; `version` does with --check."""
ASKING = sorted(example for name, example in EXAMPLES.items() if name.split(" ")[0] not in OF_THIS_MACHINE)


def _run(monkeypatch: pytest.MonkeyPatch, words: list[str], answer: Any) -> tuple[int, int]:
    """The exit code, and how many calls were made."""
    calls: list[str] = []

    def call_once(_self: Client, method: str, path: str, _body: bytes | None, _headers: dict[str, str]) -> Any:
        calls.append(f"{method} {path}")
        return answer

    def events(_self: Client, **_query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        calls.append("stream")
        yield "open", {"clock_speed": 1.0}
        yield "JobSubmitted", {"seq": 7}

    monkeypatch.setattr(Client, "_call_once", call_once)
    monkeypatch.setattr(Client, "events", events)
    return main(words), len(calls)


@pytest.mark.parametrize("answer", [{}, [], {"jobs": [{}], "nodes": [{}], "queues": [{}], "total": "many"}], ids=repr)
@pytest.mark.parametrize("example", ASKING)
def test_an_answer_of_another_version_is_one_sentence(
    example: str, answer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, calls = _run(monkeypatch, shlex.split(example)[1:], answer)
    printed = capsys.readouterr()
    assert calls, f"{example} asks no gateway"
    assert code == 1
    assert printed.err.startswith("colo: the gateway's answer is of another version: "), printed.err
    assert printed.err.endswith("; see `colo version --check`\n")
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_the_version_of_what_runs_is_asked_with_a_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, calls = _run(monkeypatch, ["version", "--check"], {})
    assert (code, calls) == (1, 1)
    assert "of another version" in capsys.readouterr().err
