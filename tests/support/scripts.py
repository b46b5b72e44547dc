"""Conversation files: commands with the exact text that must come back, one story in each file.

    # Why this step matters.
    pods a=100 b=300
    ----
    ok

A command is a first line (`name word key=value ...`), perhaps more lines as its body, then `----`, then the output up
to an empty line. No output is written as `ok`. Lines beginning with `#` between commands are comments.
`pytest --rewrite` writes what came back into the file; read the diff, and commit only what you understand.

A handler is a function of (command, Args) that returns text. What the system under test refuses belongs in that text;
a mistake in the script itself raises ScriptFailed and fails the test at its line.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Args", "Handler", "Play", "ScriptFailed", "play_script", "script_files"]

SEPARATOR = "----"
NOTHING = "ok"


class ScriptFailed(AssertionError):
    """The output differs from the file, or the file is not a script; the text begins with file:line."""


@dataclass(frozen=True)
class Args:
    """What stands after a command: plain words, key=value pairs, and the lines below it."""

    words: tuple[str, ...] = ()
    named: dict[str, str] = field(default_factory=dict)
    body: tuple[str, ...] = ()

    def word(self, index: int) -> str:
        if index >= len(self.words):
            raise ScriptFailed(f"needs a word number {index + 1}")
        return self.words[index]

    def text(self, key: str, default: str | None = None) -> str:
        value = self.named.get(key, default)
        if value is None:
            raise ScriptFailed(f"needs {key}=")
        return value

    def number(self, key: str, default: int | None = None) -> int:
        try:
            return int(self.text(key, None if default is None else str(default)))
        except ValueError as error:
            raise ScriptFailed(f"{key}= must be a whole number, not {self.named[key]!r}") from error

    def only(self, *keys: str) -> None:
        """Refuse every key but these: a misspelt key must not be silently ignored."""
        unknown = sorted(set(self.named) - set(keys))
        if unknown:
            raise ScriptFailed(f"does not know {', '.join(unknown)}; it knows {', '.join(keys) or 'no key'}")


Handler = Callable[[str, Args], str]
#: The fixture `play`: plays one file against a handler.
Play = Callable[[Path, Handler], None]


@dataclass
class _Step:
    line: int
    command: str
    args: Args
    #: Comments, command and separator as they stand in the file.
    head: list[str]
    placement_request: list[str]


def script_files(folder: Path) -> list[Path]:
    """Return the conversations of a folder in order of name; raise ScriptFailed when it has none."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise ScriptFailed(f"{folder}: has no *.txt conversation")
    return files


def play_script(path: Path, handler: Handler, *, rewrite: bool = False) -> None:
    """Run every command of the file through the handler and compare; with `rewrite`, write the output instead."""
    steps, tail = _parse(path)
    written: list[str] = []
    for step in steps:
        got = _answer(path, step, handler)
        if got != step.placement_request and not rewrite:
            raise ScriptFailed(_difference(path, step, got))
        written += [*step.head, *got, ""]
    if rewrite:
        path.write_text("\n".join([*written, *tail]).rstrip("\n") + "\n")


def _answer(path: Path, step: _Step, handler: Handler) -> list[str]:
    try:
        lines = [line.rstrip() for line in handler(step.command, step.args).rstrip("\n").splitlines()]
    except ScriptFailed as error:
        raise ScriptFailed(f"{path}:{step.line}: {step.command} {error}") from error
    if "" in lines:
        raise ScriptFailed(f"{path}:{step.line}: {step.command} printed an empty line, which ends an output")
    return lines or [NOTHING]


def _difference(path: Path, step: _Step, got: list[str]) -> str:
    request_text = "\n".join(f"    {line}" for line in step.placement_request)
    got_text = "\n".join(f"    {line}" for line in got)
    return f"{path}:{step.line}: {step.command}\n  want:\n{request_text}\n  got:\n{got_text}"


def _parse(path: Path) -> tuple[list[_Step], list[str]]:
    """Return the steps and the comments after the last one."""
    lines = path.read_text().splitlines()
    steps: list[_Step] = []
    head: list[str] = []
    index = 0
    while index < len(lines):
        if not lines[index].strip() or lines[index].startswith("#"):
            head.append(lines[index])
            index += 1
            continue
        step, index = _parse_step(path, lines, index, head)
        steps.append(step)
        head = []
    if not steps:
        raise ScriptFailed(f"{path}:1: has no command")
    return steps, head


def _parse_step(path: Path, lines: list[str], begin: int, head: list[str]) -> tuple[_Step, int]:
    """Read the step whose command is on line index `begin`; return it and the index after its output."""
    try:
        separator = next(i for i in range(begin, len(lines)) if lines[i].strip() == SEPARATOR)
    except StopIteration:
        raise ScriptFailed(f"{path}:{begin + 1}: no {SEPARATOR} after this command") from None
    if any(not line.strip() for line in lines[begin:separator]):
        raise ScriptFailed(f"{path}:{begin + 1}: an empty line stands between this command and its {SEPARATOR}")
    end = next((i for i in range(separator, len(lines)) if not lines[i].strip()), len(lines))
    try:
        command, *words = shlex.split(lines[begin])
    except ValueError as error:
        raise ScriptFailed(f"{path}:{begin + 1}: {error}") from error
    named = dict(word.split("=", 1) for word in words if "=" in word)
    plain = tuple(word for word in words if "=" not in word)
    args = Args(words=plain, named=named, body=tuple(lines[begin + 1 : separator]))
    placement_request = [line.rstrip() for line in lines[separator + 1 : end]]
    step = _Step(begin + 1, command, args, [*head, *lines[begin : separator + 1]], placement_request)
    # The empty line that ends an output belongs to it; play_script writes it back.
    return step, min(end + 1, len(lines))
