"""The import graph: it has no circles, its chains are short, and the picture in docs/imports.md is the source's own."""

from __future__ import annotations

from typing import Final

import pytest

from tests.repo.import_graph import FILE, circles, document, longest_chain, product_graph

CHAIN_MAX: Final = {"colo_scheduler": 12}
"""The longest chain of imports that a package may have, in modules."""


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(product_graph()) == []


@pytest.mark.parametrize("package", sorted(CHAIN_MAX))
def test_the_chains_of_imports_of_a_package_stay_short(package: str) -> None:
    chain = longest_chain(product_graph(), package)
    assert len(chain) <= CHAIN_MAX[package], " -> ".join(chain)


def test_the_picture_of_the_imports_is_up_to_date() -> None:
    assert FILE.read_text() == document(), "run `just imports`"
