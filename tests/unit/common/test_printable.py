"""Text from outside shows every character that a terminal would obey, and no other one is touched."""

import io
import json

import pytest
import structlog

from colo_common.model.printable import printable, printable_values
from colo_common.runtime import logs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain, übergroß, 日本語, ✓, a\u00a0b", "plain, übergroß, 日本語, ✓, a\u00a0b"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("\x9b31m\x7f", "\\u009b31m\\u007f"),
        ("a\nb\tc\r\x08", "a\\nb\\tc\\r\\b"),
        ("\u202ecod\u2066\u200b\u2028", "\\u202ecod\\u2066\\u200b\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("c:\\dir", "c:\\dir"),
    ],
)
def test_what_a_terminal_would_obey_is_written_as_json_writes_it(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_stay_lines_where_they_may() -> None:
    assert printable("a\n\x1bb\tc", keeps="\n\t") == "a\n\\u001bb\tc"


def test_values_are_printable_with_their_keys() -> None:
    assert printable_values({"\x1b": ["\x07", 1, None, {"a": True}]}) == {"\\u001b": ["\\u0007", 1, None, {"a": True}]}


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_line_of_the_log_has_no_codes_of_others(style: str) -> None:
    out = io.StringIO()
    before = structlog.get_config()
    try:
        logs.configure("info", style, out)
        structlog.get_logger().info("event", why="\x1b[2J\x9b\x7f\u202e\U000e0041")
    finally:
        structlog.configure(**before)
    line = out.getvalue()
    assert all(character.isprintable() or character == "\n" for character in line)
    if style == "json":
        assert json.loads(line)["why"] == "\x1b[2J\x9b\x7f\u202e\U000e0041"
