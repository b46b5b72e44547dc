"""What a person is told who types the words of another tool, a flag that every tool has, or a file without its flag."""

import shlex

import pytest

from colo_cli.hints import HINTS, hint_of
from colo_cli.main import app, main


@pytest.mark.parametrize("typed", sorted(HINTS), ids=" ".join)
def test_a_hint_is_about_a_command_that_is_not_there_and_names_commands_that_are(
    typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*typed, "x"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith('colo: Unknown command "')
    for command in HINTS[typed]:
        assert f"`{command}`" in printed.err
        app.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["explain", "render"], "of a job it is `colo explain job render`"),
        (["status", "--json"], "JSON is `-o json`"),
        (["node", "show", "--local", "--json"], "JSON is `-o json`"),
        (["doctor", "--json"], "JSON is `-o json`"),
        (["pause", "node", "n1"], "it is `colo pause --node n1`"),
        (["submit", "examples/job.yaml"], "a file is named with -f: `colo submit -f examples/job.yaml`"),
        (["plan", "examples/job.yaml"], "a file is named with -f: `colo plan -f examples/job.yaml`"),
    ],
)
def test_what_is_nearly_right_is_put_right(typed: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 2
    assert capsys.readouterr().err.endswith(f"\n  {hint}\n")


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        (["node", "show", "--local", "--bogus"], "--bogus: there is no such setting"),
        (["node", "restore", "--yes", "--bogus"], "--bogus: there is no such setting"),
        (["doctor", "--bogus"], "--bogus: only goes with --cluster"),
        (["status", "x"], "x: too much; the command takes no such words after the others"),
        (
            ["node", "show", "n9"],
            "`colo node show --local` shows this machine; `colo get node n9` shows a node of the cluster",
        ),
    ],
)
def test_a_setting_that_is_not_there_is_told_in_one_line(
    typed: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert capsys.readouterr().err == f"colo: {problem}\n"


def test_what_nobody_can_guess_gets_no_hint() -> None:
    assert hint_of(["frobnicate"]) == hint_of([]) == hint_of(["explain", "job"]) == ""


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_flag_of_every_tool_prints_the_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    printed = capsys.readouterr().out
    assert main(["version"]) == 0
    assert capsys.readouterr().out == printed != ""


@pytest.mark.enable_socket
@pytest.mark.parametrize("words", [["watch"], ["get", "jobs"], ["status"]])
def test_without_a_gateway_every_command_says_the_same(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--api", "http://127.0.0.1:9"]) == 1
    expected = (
        "no gateway answers at http://127.0.0.1:9 (Connection refused); is `colo lab` running, or is COLO_API set?"
    )
    assert capsys.readouterr().err == f"colo: {expected}\n"


def test_a_file_that_is_not_there_is_told_without_the_words_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "-f", "nowhere.yaml"]) == 2
    assert capsys.readouterr().err == "colo: nowhere.yaml: cannot be read: No such file or directory\n"
