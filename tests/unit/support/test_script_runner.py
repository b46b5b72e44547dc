"""The conversation runner: it compares, it points at the line, and it rewrites only when told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scripts import Args, ScriptFailed, play_script, script_files


def answer(command: str, args: Args) -> str:
    match command:
        case "add":
            args.only("a", "b")
            return str(args.number("a") + args.number("b", 0))
        case "echo":
            return "\n".join((" ".join(args.words), *args.body))
        case "forget":
            return ""
        case "gap":
            return "one\n\ntwo"
        case _:
            raise ScriptFailed("is no command here")


def written(folder: Path, text: str) -> Path:
    path = folder / "story.txt"
    path.write_text(text)
    return path


def test_a_story_that_holds_passes_and_leaves_the_file_alone(tmp_path: Path) -> None:
    text = '# Sum.\nadd a=1 b=2\n----\n3\n\necho "two words" x\nbelow\n----\ntwo words x\nbelow\n\nforget\n----\nok\n'
    path = written(tmp_path, text)
    play_script(path, answer)
    assert path.read_text() == text


def test_a_difference_names_the_line_the_wanted_and_the_answered_text(tmp_path: Path) -> None:
    path = written(tmp_path, "# Sum.\nadd a=1 b=2\n----\n4\n")
    with pytest.raises(ScriptFailed) as failed:
        play_script(path, answer)
    assert str(failed.value) == f"{path}:2: add\n  want:\n    4\n  got:\n    3"


def test_rewriting_changes_the_outputs_and_keeps_comments_and_order(tmp_path: Path) -> None:
    path = written(tmp_path, "# First.\n\n# Sum.\nadd a=1\n----\nwrong\nlines\n\nforget\n----\n# The end.\n")
    play_script(path, answer, rewrite=True)
    assert path.read_text() == "# First.\n\n# Sum.\nadd a=1\n----\n1\n\nforget\n----\nok\n"


def test_what_was_rewritten_passes_and_rewrites_to_itself(tmp_path: Path) -> None:
    path = written(tmp_path, "add a=1\n----\n\n\n# Middle.\nforget\n----\nx\n\n# Last words.\n")
    play_script(path, answer, rewrite=True)
    once = path.read_text()
    play_script(path, answer)
    play_script(path, answer, rewrite=True)
    assert path.read_text() == once
    assert "# Middle." in once
    assert once.endswith("# Last words.\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("add a=1\n", ":1: no ---- after this command"),
        ("# Nothing but words.\n", ":1: has no command"),
        ("forget\n\nlines\n----\nok\n", ":1: an empty line stands between this command and its ----"),
        ("\nadd b=1\n----\n1\n", ":2: add needs a="),
        ("add a=x\n----\n1\n", ":1: add a= must be a whole number, not 'x'"),
        ("add a=1 c=2\n----\n1\n", ":1: add does not know c; it knows a, b"),
        ("jump\n----\nok\n", ":1: jump is no command here"),
        ("gap\n----\nok\n", ":1: gap printed an empty line, which ends an output"),
        ('echo "open\n----\nok\n', ":1: No closing quotation"),
    ],
)
@pytest.mark.parametrize("rewrite", [False, True])
def test_a_mistake_in_the_script_fails_at_its_line_even_when_rewriting(
    tmp_path: Path, text: str, reason: str, rewrite: bool
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ScriptFailed) as failed:
        play_script(path, answer, rewrite=rewrite)
    assert str(failed.value) == f"{path}{reason}"
    assert path.read_text() == text


def test_a_folder_without_conversations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptFailed, match="no \\*.txt conversation"):
        script_files(tmp_path)
    assert script_files(written(tmp_path, "forget\n----\nok\n").parent) == [tmp_path / "story.txt"]
