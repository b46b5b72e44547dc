"""Whoever reads the contract finds at each type what it guarantees."""

import importlib
import inspect
import pkgutil

import pytest

import colo_common.events
import colo_common.model

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (colo_common.events, colo_common.model)
    for module in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_type_documents_what_it_guarantees(module: str) -> None:
    delivered = importlib.import_module(module)
    own = [
        each
        for name, each in inspect.getmembers(delivered, inspect.isclass)
        if each.__module__ == module and not name.startswith("_")
    ]
    # `__doc__` is inherited from nobody here: msgspec and enums would lend theirs.
    assert [each.__name__ for each in own if not each.__dict__.get("__doc__")] == []
