"""The output of `--help`: every option of every command in words."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
from cyclopts import App

from colo_cli.examples import EXAMPLES, example_of
from colo_cli.exit_codes import EXIT_CODES, SPECIAL
from colo_cli.main import app, main
from colo_common.model.freshness import Freshness
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason


def _commands(group: App, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command below a group; a command that has no function is a group of its own."""
    found: list[tuple[str, ...]] = []
    for name in group:
        if not name.startswith("-"):
            below = group[name]
            found += [(*words, name)] if below.default_command else _commands(below, (*words, name))
    return found


COMMANDS = _commands(app)


def _function(words: tuple[str, ...]):
    found = app
    for word in words:
        found = found[word]
    return found.default_command


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_of_a_command_is_described_in_its_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    app([*words, "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, parameter in inspect.signature(_function(words)).parameters.items():
        documented = inspect.getdoc(_function(words)) or ""
        described = [line.strip() for line in documented.splitlines() if line.strip().startswith(f"{name}: ")]
        assert described, f"{name} is not described"
        first_words = " ".join(described[0].removeprefix(f"{name}: ").split()[:3])
        assert first_words in shown, f"the help does not show: {first_words} ({parameter})"


def test_the_commands_were_found():
    assert {("plan",), ("lab",), ("get", "nodes"), ("explain", "reservation"), ("admin", "tokens", "add")} <= set(
        COMMANDS
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_that_it_takes(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    if words == ("complete-names",):
        return
    example = EXAMPLES[" ".join(words)]
    typed = shlex.split(example.partition(" | ")[0])
    assert typed[: 1 + len(words)] == ["colo", *words]
    app.parse_args(typed[1:], exit_on_error=False, print_error=False)
    assert main([*words, "--help"]) == 0
    assert capsys.readouterr().out.endswith(f"Example: {example}\n")


def test_no_example_is_of_a_command_that_is_not_there():
    groups = {"", *(" ".join(words[:size]) for words in COMMANDS for size in range(1, len(words)))}
    assert EXAMPLES.keys() - groups == {" ".join(words) for words in COMMANDS} - {"complete-names"}
    assert example_of(["get", "nodes", "--help"]) == EXAMPLES["get nodes"]


def test_every_word_that_a_screen_shows_is_explained(capsys: pytest.CaptureFixture[str]):
    shown = [*JOB.state_names, *REPLICA.state_names, *Freshness, *QosClass, *PriorityBand, *Reason]
    for word in (*shown, "ceiling", "promised", "headroom", "held", "Privileged", "WillEvicted"):
        assert main(["help", "words", str(word)]) == 0
        assert re.search(rf"^{re.escape(word)} \(.+\): .+$", capsys.readouterr().out, re.MULTILINE), word
    assert main(["help", "words"]) == 0
    whole = capsys.readouterr().out
    assert all(f"  {word} " in whole for word in shown)
    assert "\x1b" not in whole
    assert main(["help", "words", "inqeue"]) == 2
    assert "did you mean `Inqueue`?" in capsys.readouterr().err


def test_the_page_of_exit_codes_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]):
    assert main(["help", "exit-codes"]) == 0
    printed = capsys.readouterr().out
    page = Path("docs/exit-codes.md").read_text("utf-8")
    for row in EXIT_CODES:
        assert f"| {row.code} | {row.says} |" in page
        assert f"{row.code}  {row.says}" in printed
    for command, says in SPECIAL:
        assert f"| `{command}` | {says} |" in page
        assert says in printed


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["sumbit"], "submit"),
        (["get", "quues"], "queues"),
        (["plan", "-f", "x", "--place", "3"], "--places"),
        (["submit", "-f", "x", "--idempotency", "3"], "--idempotency-key"),
    ],
)
def test_a_typing_error_in_a_command_or_flag_is_told_the_nearest(
    words: list[str], near: str, capsys: pytest.CaptureFixture[str]
):
    assert main(words) == 2
    assert re.search(rf"Did you mean \"?{near}\"?\?", capsys.readouterr().err)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("uncordon", "idempotency-key", "reservations"):
        assert word in script
    assert "colo complete-names jobs" in script or 'complete-names "$what"' in script
