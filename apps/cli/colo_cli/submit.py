"""The command `colo submit -f job.yaml`."""

import json
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from colo_cli.client import Client
from colo_cli.failure import Failure
from colo_cli.output import Format, print_data

__all__ = ["read_file", "read_job_file", "submit"]

_FILE_BYTES_MAX = 1 << 20


def submit(
    *,
    file: Annotated[str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)],
    idempotency_key: str = "",
    output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table",
    api: str | None = None,
) -> int:
    """Submit the job that a file describes.

    Args:
        file: The job file (YAML or JSON); "-" reads standard input.
        idempotency_key: Submitting again with the same key and job is the same submission.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    mapping = read_job_file(file)
    # The key makes repeated requests one submission.
    key = idempotency_key or secrets.token_hex(16)
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    answer = Client(api).call("POST", "/v1/jobs", json.dumps(mapping).encode(), **headers)
    if output != "table":
        print_data(answer, output)
    else:
        sys.stdout.write(f"{answer['job']} {answer['state']}\n")
    return 0


def read_job_file(file: str) -> dict[str, Any]:
    """The file's mapping, checked as the gateway will check it. Raises Failure (2) naming the field and the rule."""
    from colo_common.model.job_file import job_from_mapping

    return read_file(file, "job", job_from_mapping)


def read_file(file: str, what: str, check: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The mapping in a file ("-": standard input) of `what`. Raises Failure (2) for a mapping that `check` refuses."""
    from colo_common.model.invalid import InvalidInput
    from colo_common.model.plain_yaml import read_yaml

    try:
        text = sys.stdin.read(_FILE_BYTES_MAX + 1) if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: cannot be read ({error})", 2) from error
    if len(text) > _FILE_BYTES_MAX:
        raise Failure(f"{file}: must have at most {_FILE_BYTES_MAX} bytes", 2)
    try:
        mapping = read_yaml(text, what, may_repeat=True)
        if not isinstance(mapping, dict):
            raise Failure(f"{file}: must be a mapping of the {what}'s fields", 2)
        check(mapping)
    except InvalidInput as error:
        raise Failure(f"{file}: {error}", 2) from error
    return mapping
