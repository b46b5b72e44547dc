"""The parity tables: one module per table, each with a `TABLE`. A new module registers itself by being here."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from tests.parity.table import JsonObject, Table


@cache
def all_tables() -> tuple[Table, ...]:
    """Return every registered table, ordered by stem."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        table = getattr(importlib.import_module(f"{__name__}.{module.name}"), "TABLE", None)
        if isinstance(table, Table):
            found.append(table)
    return tuple(sorted(found, key=lambda table: table.stem))


def find_table(stem: str, document: JsonObject) -> Table | None:
    """Return the table for a file: the one of its stem, else of the longest stem it begins with, else by content.

    A stem with a suffix ("psi_parse_2", "psi_parse.more") only counts when the content fits too. By content, the
    table that recognises most of the document's kinds wins; a draw goes to the first stem in order.
    """
    tables = all_tables()
    for table in tables:
        if table.stem == stem:
            return table
    fitting = [(_overlap(table, document), table) for table in tables]
    fitting = [(overlap, table) for overlap, table in fitting if overlap > 0]
    named = [table for _, table in fitting if stem.startswith(table.stem)]
    if named:
        return max(named, key=lambda table: len(table.stem))
    if fitting:
        return max(fitting, key=lambda entry: entry[0])[1]
    return None


def _overlap(table: Table, document: JsonObject) -> int:
    """How many parts of the document the table recognises; 0 where it cannot read them."""
    try:
        return table.overlap(document)
    except (AttributeError, KeyError, TypeError):
        return 0
