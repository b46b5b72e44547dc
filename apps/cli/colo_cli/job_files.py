"""The jobs in a file: one job file or Kubernetes manifest, several as YAML documents, or a list of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from colo_cli.failure import Failure

__all__ = ["JobInFile", "read_file", "read_job_file", "read_job_files", "read_text"]

_FILE_BYTES_MAX: Final = 1 << 20
_JOBS_MOST: Final = 100


class JobInFile(NamedTuple):
    """The mapping of one job of a file. `where` says which: "document 2", "item 3"; "" for the only one. `name` is the job's."""

    mapping: dict[str, Any]
    where: str
    name: str

    @property
    def title(self) -> str:
        """The place and the name of a job among others: "document 2 (train)"."""
        return f"{self.where} ({self.name})" if self.where else self.name


def read_job_file(file: str) -> dict[str, Any]:
    """The mapping of the one job in a file, checked as the gateway will check it. Raises Failure (2) with field and rule."""
    found = read_job_files(file)
    if len(found) > 1:
        raise Failure(f"{file}: must hold one job here, and has {len(found)}", 2)
    return found[0].mapping


def read_job_files(file: str) -> tuple[JobInFile, ...]:
    """All jobs of a file, each checked as the gateway will check it. Raises Failure (2) for the first wrong one, by its place.

    A file holds a job file or manifest, several of them as YAML documents (`---`), a list of them, or a Kubernetes List.
    """
    from colo_common.model.invalid import InvalidInput
    from colo_common.model.job_file import job_from_mapping
    from colo_common.model.plain_yaml import read_documents

    try:
        documents = read_documents(read_text(file), "job")
    except InvalidInput as error:
        raise Failure(f"{file}: {error}", 2) from error
    values = _items(documents)
    if not values:
        raise Failure(f"{file}: must hold at least one job", 2)
    if len(values) > _JOBS_MOST:
        raise Failure(f"{file}: must hold at most {_JOBS_MOST} jobs, and has {len(values)}", 2)
    found = []
    for where, value in values:
        at = f"{file}: {where}: " if where else f"{file}: "
        if not isinstance(value, dict):
            raise Failure(f"{at}must be a mapping of the job's fields", 2)
        try:
            found.append(JobInFile(value, where, job_from_mapping(value).name))
        except InvalidInput as error:
            raise Failure(f"{at}{error}", 2) from error
    return tuple(found)


def _items(documents: list[Any]) -> list[tuple[str, Any]]:
    """Every value with its place in the file; a list stands for what it holds."""
    found: list[tuple[str, Any]] = []
    for number, document in enumerate(documents, start=1):
        where = f"document {number}" if len(documents) > 1 else ""
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else document
        if isinstance(items, list):
            prefix = f"{where}, " if where else ""
            found += [(f"{prefix}item {position}", item) for position, item in enumerate(items, start=1)]
        else:
            found.append((where, document))
    return found


def read_file(file: str, what: str, check: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The mapping in a file ("-": standard input) of `what`. Raises Failure (2) for a mapping that `check` refuses."""
    from colo_common.model.invalid import InvalidInput
    from colo_common.model.plain_yaml import read_yaml

    try:
        mapping = read_yaml(read_text(file), what, may_repeat=True)
        if not isinstance(mapping, dict):
            raise Failure(f"{file}: must be a mapping of the {what}'s fields", 2)
        check(mapping)
    except InvalidInput as error:
        raise Failure(f"{file}: {error}", 2) from error
    return mapping


def read_text(file: str) -> str:
    """The text of a file, "-" is standard input. Raises Failure (2) when it cannot be read or is too large."""
    try:
        text = sys.stdin.read(_FILE_BYTES_MAX + 1) if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise Failure(f"{file}: cannot be read: {why}", 2) from error
    if len(text) > _FILE_BYTES_MAX:
        raise Failure(f"{file}: must have at most {_FILE_BYTES_MAX} bytes", 2)
    return text
