"""Writes the files generated from the registry, or checks that they are up to date: asyncapi.yaml and the tables of README.md.

python -m colo_common.runtime.documents [--check] [--root DIRECTORY]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from colo_common.events.asyncapi import asyncapi_document, event_tables
from colo_common.model.invalid import InvalidInput

__all__ = ["asyncapi_text", "documents", "main", "readme_with_tables"]

_BEGIN: Final = "<!-- events:begin -->"
_END: Final = "<!-- events:end -->"
_HEAD: Final = "# Generated from colo_common.events.registry: python -m colo_common.runtime.documents\n"


def asyncapi_text() -> str:
    """The content of asyncapi.yaml."""
    body = yaml.dump(asyncapi_document(), Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=120)
    return _HEAD + str(body)


def readme_with_tables(text: str) -> str:
    """A README with its tables as the registry has them. Raises InvalidInput when it lacks the two markers."""
    before, begin, rest = text.partition(_BEGIN)
    _old, end, after = rest.partition(_END)
    if not begin or not end:
        raise InvalidInput("README.md", f"needs {_BEGIN} and {_END} around the event tables", None)
    return f"{before}{begin}\n{event_tables()}{end}{after}"


def documents(root: Path) -> dict[Path, str]:
    """Each generated file and its content. Raises InvalidInput for a README without markers or an unreadable one."""
    readme = root / "README.md"
    try:
        text = readme.read_text()
    except OSError as error:
        raise InvalidInput("README.md", f"must be readable: {error.strerror}", str(readme)) from error
    return {root / "asyncapi.yaml": asyncapi_text(), readme: readme_with_tables(text)}


def main(argv: Sequence[str] | None = None) -> int:
    """0 when everything is (now) up to date, 1 when --check found something old, 2 for a bad root."""
    parser = argparse.ArgumentParser(
        prog="python -m colo_common.runtime.documents", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing, name what is out of date")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: the current directory)")
    options = parser.parse_args(argv)
    try:
        wanted = documents(options.root)
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    old = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in old:
        if not options.check:
            path.write_text(wanted[path])
        sys.stderr.write(f"{path}: {'out of date, run this without --check' if options.check else 'written'}\n")
    return 1 if old and options.check else 0


class _PlainDumper(yaml.SafeDumper):
    """Writes every value out where it stands: aliases (&id001) are hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


if __name__ == "__main__":
    sys.exit(main())
