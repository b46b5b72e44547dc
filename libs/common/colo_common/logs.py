"""Structured logs on stderr: one JSON object a line for machines, or coloured lines for people.

Written here and not taken from a library, because every process imports it: what the known one brings along for coloured tracebacks
was a seventh of the CPU time in which a service starts, and 8 MiB of each.
"""

import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

__all__ = ["Logger", "configure", "get_logger"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_COLOURS: Final = {"debug": "32", "info": "32;1", "warning": "33;1", "error": "31;1", "critical": "31;1"}
#: Values that a line for people shows elsewhere than among the others.
_SHOWN_FIRST: Final = ("at", "level", "event")


class _Output:
    """Where the lines of this process go, and in which form: JSON from level info on, until `configure` says otherwise."""

    level = logging.INFO
    style = "json"
    stream: TextIO | None = None
    always: Mapping[str, str] = {}


_output: Final = _Output()


class Logger:
    """Writes one line for each event, with the values that are bound to it and those of the call."""

    __slots__ = ("_bound",)

    def __init__(self, bound: Mapping[str, object]) -> None:
        self._bound = bound

    def bind(self, **values: object) -> "Logger":
        """A logger whose lines have these values as well."""
        return Logger({**self._bound, **values})

    def debug(self, event: str, **values: object) -> None:
        """What only somebody wants who looks for a defect."""
        self._write("debug", logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        """What happened as it should."""
        self._write("info", logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        """What the process lives with."""
        self._write("warning", logging.WARNING, event, values)

    def error(self, event: str, *, exc_info: bool = False, **values: object) -> None:
        """What was lost; with `exc_info` the traceback of the error that is handled."""
        self._write("error", logging.ERROR, event, values, exc_info)

    def critical(self, event: str, *, exc_info: bool = False, **values: object) -> None:
        """What ends the process; with `exc_info` the traceback of the error that is handled."""
        self._write("critical", logging.CRITICAL, event, values, exc_info)

    def _write(self, level: str, number: int, event: str, values: Mapping[str, object], exc_info: bool = False) -> None:
        if number < _output.level:
            return
        line = {**_output.always, **self._bound, **values, "event": event, "level": level, "at": _now()}
        if exc_info:
            line["exception"] = traceback.format_exc().rstrip()
        stream = _output.stream or sys.stderr
        text = _json(line) if _output.style == "json" else _for_people(line, is_coloured=stream.isatty())
        # In one piece: several threads write.
        stream.write(f"{text}\n")
        stream.flush()


def get_logger(source: str) -> Logger:
    """The logger of one part of a process, which every line names."""
    return Logger({"source": source})


def configure(level: str = "info", style: str = "json", stream: TextIO | None = None, **always: str) -> None:
    """Set up the logs of this process: `stream` None is stderr, `always` is in every line, the style "json" or "console".

    Raises KeyError for another level than debug, info, warning or error.
    """
    _output.level, _output.style, _output.stream, _output.always = _LEVELS[level], style, stream, always
    # What libraries log by themselves becomes lines of the same form; without a handler Python would print it bare.
    root = logging.getLogger()
    if not any(isinstance(each, _Forwarder) for each in root.handlers):
        root.addHandler(_Forwarder(logging.WARNING))


class _Forwarder(logging.Handler):
    """Passes a line of a library on; one that cannot be formatted is passed on as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        log = get_logger(record.name)
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        (log.error if record.levelno >= logging.ERROR else log.warning)("library-says", text=text)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _json(line: Mapping[str, object]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=repr).decode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        # Half a character, or a number that JSON has no place for: a line is never the reason that something fails.
        return msgspec.json.encode({name: ascii(value) for name, value in line.items()}).decode()


def _for_people(line: Mapping[str, object], *, is_coloured: bool) -> str:
    def coloured(text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if is_coloured else text

    level = str(line["level"])
    words = [
        coloured(str(line["at"]), "2"),
        f"[{coloured(f'{level:<8}', _COLOURS[level])}]",
        coloured(f"{line['event']!s:<30}", "1"),
    ]
    words += [
        f"{coloured(name, '36')}={coloured(str(value) if _is_plain(value) else repr(value), '35')}"
        for name, value in line.items()
        if name not in (*_SHOWN_FIRST, "exception")
    ]
    traced = f"\n{line['exception']}" if "exception" in line else ""
    return " ".join(words) + traced


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and " " not in value and value != ""
