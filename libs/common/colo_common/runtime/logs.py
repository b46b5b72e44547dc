"""Structured logs on stderr: one JSON object a line for machines, or coloured lines for people."""

import contextlib
import io
import logging
import sys
from typing import Any, Final, TextIO, cast

import msgspec
import structlog

from colo_common.model.printable import printable

__all__ = ["configure"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(level: str = "info", style: str = "json", stream: TextIO | None = None, **always: str) -> None:
    """Set up the logs of this process; `always` is in every line. Style "json" or "console". Raises KeyError for another level.

    A line that the stream does not take, as a file on a full disk, is lost, and nothing else: what logs goes on.
    """
    out = stream or sys.stderr
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _adder(always),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    if style == "console":
        processors.append(_printable)
        processors.append(structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="at"))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_dumps)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _Lossy(out))),
        cache_logger_on_first_use=False,
    )
    # What libraries log by themselves becomes lines of the same form; without a handler Python would print it bare.
    root = logging.getLogger()
    if not any(isinstance(each, _Forwarder) for each in root.handlers):
        root.addHandler(_Forwarder(logging.WARNING))


class _Lossy(io.TextIOBase):
    """Passes lines on to the stream, but for those that it refuses."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _Forwarder(logging.Handler):
    """Passes a line of a library on; one that cannot be formatted is passed on as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(source=record.name)
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        (log.error if record.levelno >= logging.ERROR else log.warning)("library-says", text=text)


def _adder(always: dict[str, str]) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        for key, value in always.items():
            event.setdefault(key, value)
        return event

    return add


def _printable(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A person's terminal would obey codes in what others sent."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}


def _dumps(event: Any, default: Any = None, **_ignored: Any) -> str:
    # In JSON such a character can only be in a text, where its number stands for it.
    return printable(msgspec.json.encode(event, enc_hook=repr).decode())
