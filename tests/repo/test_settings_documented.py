"""What an operator may set stands in the READMEs: nobody has to read the code to find a key."""

from __future__ import annotations

import importlib
import re

import pytest

from colo_common.runtime.settings import Common, keys_of
from tests.repo.tree import ROOT, SERVICES

COMMON = set(keys_of(Common))


def delivered(readme: str) -> str:
    """The part of a README that is about settings."""
    text = (ROOT / readme).read_text()
    return text[text.index("## Settings") :].split("\n## ", maxsplit=1)[0]


def is_published(key: str, text: str) -> bool:
    """Whether a key stands there, or the group it belongs to (`rules_...`, `suppress_*`)."""
    groups = re.findall(r"\b(\w+_)(?:\.\.\.|\*)", text)
    return re.search(rf"\b{key}\b", text) is not None or key.startswith(tuple(groups))


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_readme_names_every_setting_of_its_own(service: str) -> None:
    settings = getattr(importlib.import_module(f"colo_{service}.settings"), f"{service.capitalize()}Settings")
    text = delivered(f"services/{service}/README.md")
    assert not [key for key in keys_of(settings) if key not in COMMON and not is_published(key, text)]
    assert "libs/common/README.md#settings" in text


def test_the_readme_of_the_library_names_what_every_service_has() -> None:
    text = delivered("libs/common/README.md")
    assert not [key for key in sorted(COMMON) if not is_published(key, text)]
