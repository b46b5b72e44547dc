"""Python compiled beforehand: emulated, the compiler would take longer than everything else together."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import py_compile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.kernel.lab.archive import Entry, file
from tests.kernel.lab.cache import cache_dir

__all__ = ["with_bytecode"]

_AT_ONCE: Final = 64
_MANY: Final = 200


def with_bytecode(sources: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries, and beside each Python module its compiled form, which the interpreter takes without asking for its age.

    A module that this interpreter cannot compile travels alone. What was compiled is kept by content.
    """
    modules = [entry for entry in sources if entry.path.endswith(".py")]
    wanted = [(entry.path, entry.source or entry.content) for entry in modules]
    if len(wanted) > _MANY:
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
            compiled = list(pool.map(_compiled, wanted, chunksize=_AT_ONCE))
    else:
        compiled = [_compiled(one) for one in wanted]
    made = [
        file(importlib.util.cache_from_source(entry.path), path)
        for entry, path in zip(modules, compiled, strict=True)
        if path is not None
    ]
    return (*sources, *made)


def _compiled(wanted: tuple[str, Path | bytes]) -> Path | None:
    path, source = wanted
    data = source.read_bytes() if isinstance(source, Path) else source
    # The path is in the compiled form, for tracebacks; the interpreter's tag in its name.
    tag = importlib.util.cache_from_source("x").rpartition("/")[2]
    key = hashlib.sha256(f"{tag} {path}\n".encode() + data).hexdigest()[:32]
    target = cache_dir("bytecode", key[:2]) / f"{key}.pyc"
    if target.exists():
        return target
    scratch = target.with_suffix(f".{os.getpid()}.py")
    scratch.write_bytes(data)
    try:
        py_compile.compile(
            str(scratch),
            cfile=str(target),
            dfile=path,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except py_compile.PyCompileError:
        return None
    finally:
        scratch.unlink(missing_ok=True)
    return target
