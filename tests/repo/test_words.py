"""What must not be written: subjects outside the wire contract, paths of one person's machine."""

from __future__ import annotations

import re

from tests.repo.tree import ROOT, files, mentioning, modules, shown, text_of

#: Joined here so that this file does not find itself.
SUBJECT_ROOT = ".".join(("colo", "v1"))
HOME_PATH = re.compile(r"(?<![\w.~}])/(?:home/[a-z]|root/|Users/[A-Za-z]|work/[a-z.])")
BINARY = {".gz", ".png", ".bin", ".zst", ".ico"}


def test_subjects_are_spelt_only_in_the_wire_contract() -> None:
    contract = ROOT / "libs/common/colo_common/events"
    found = [
        shown(path, number)
        for path in mentioning(f"{SUBJECT_ROOT}.", modules("apps", "libs", "services"))
        if not path.is_relative_to(contract)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if f"{SUBJECT_ROOT}." in line and re.search(rf"""["'`]{re.escape(SUBJECT_ROOT)}\.""", line)
    ]
    assert not found, f"use the objects of colo_common.events.subjects: {found}"


def test_no_file_names_the_home_of_one_machine() -> None:
    found = []
    for path in files():
        if path.suffix in BINARY:
            continue
        text = path.read_text(errors="replace")
        if HOME_PATH.search(text):
            found += [shown(path, number) for number, line in enumerate(text.splitlines(), 1) if HOME_PATH.search(line)]
    assert not found, found
