"""The output of `--help`: every option of every command in words."""

import inspect

import pytest

from colo_cli.main import app

COMMANDS = [
    (*group, name)
    for group, names in (((), app), (("get",), app["get"]), (("explain",), app["explain"]))
    for name in names
    if not name.startswith("-") and (*group, name) not in {("get",), ("explain",)}
]


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
    assert {("plan",), ("lab",), ("get", "nodes"), ("explain", "reservation")} <= set(COMMANDS)
