"""The keys of an identity provider from a file: read again when it changed, kept while it is broken."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import structlog

from colo_gateway.door.key_file import KeyFile


def keys_of(text: bytes) -> Mapping[str, str]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def replaced(path: Path, text: str) -> None:
    """Put another file in its place, as an administrator or a mounted secret does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


def test_a_changed_file_is_read_again_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text('{"a": "1"}')
    file = KeyFile(path, keys_of)
    assert file.keys(10.0) == {"a": "1"}
    replaced(path, '{"b": "2"}')
    assert file.keys(10.9) == {"a": "1"}, "looked at once a second"
    assert file.keys(11.0) == {"b": "2"}


@pytest.mark.parametrize("broken", ["{", "[]", "{}", '{"a": "' + "x" * 1_000_000 + '"}', None, "pipe"])
def test_a_broken_file_keeps_the_last_keys_and_is_named_once(tmp_path: Path, broken: str | None) -> None:
    path = tmp_path / "jwks.json"
    path.write_text('{"a": "1"}')
    file = KeyFile(path, keys_of)
    if broken is None or broken == "pipe":
        path.unlink()
    if broken == "pipe":
        os.mkfifo(path)
    elif broken is not None:
        replaced(path, broken)
    with structlog.testing.capture_logs() as reported:
        assert [dict(file.keys(float(second))) for second in range(10, 15)] == [{"a": "1"}] * 5
    assert [(each["event"], each["file"]) for each in reported] == [("issuer-keys-unreadable", str(path))]
    path.unlink(missing_ok=True)
    path.write_text('{"c": "3"}')
    assert file.keys(20.0) == {"c": "3"}


@pytest.mark.parametrize("text", ["{", "{}"])
def test_a_file_without_keys_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"."):
        KeyFile(path, keys_of)
