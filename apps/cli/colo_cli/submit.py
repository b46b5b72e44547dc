"""The command `colo submit -f job.yaml`."""

import json
import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from colo_cli.client import Client
from colo_cli.failure import CommandRefused, Failure, NoReply
from colo_cli.output import Format, print_data
from colo_cli.pending_submission import keep_key, take_key

__all__ = ["print_notes", "read_file", "read_job_file", "submit"]

_FILE_BYTES_MAX = 1 << 20
NOT_KNOWN: Final = 3
"""The exit status when it is not known whether the job was accepted."""


def submit(
    *,
    file: Annotated[str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)],
    idempotency_key: str = "",
    check_index: str = "",
    output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table",
    api: str | None = None,
) -> int:
    """Submit the job that a file describes.

    Ends with 0 when it is accepted, 1 when it is refused, 2 for a wrong file, 3 when nobody knows whether it was accepted; the same
    command again is then the same submission.

    Args:
        file: A job file, or a Kubernetes Pod or Deployment (YAML or JSON); "-" reads standard input.
        idempotency_key: Submitting again with the same key and job is the same submission.
        check_index: Only while the plan that printed this index still holds; 0 asks that no unfinished job has the name.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    mapping = read_job_file(file)
    body = json.dumps(mapping).encode()
    client = Client(api)
    kept = "" if idempotency_key else take_key(client.api, body)
    if kept:
        print("repeats the submission of which it was not known whether it was accepted", file=sys.stderr)
    # The key makes repeated requests one submission.
    key = idempotency_key or kept or secrets.token_hex(16)
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    if check_index:
        headers["Check-Index"] = check_index
    try:
        answer = client.call("POST", "/v1/jobs", body, **headers)
    except (NoReply, CommandRefused, KeyboardInterrupt) as error:
        if isinstance(error, CommandRefused) and not error.is_unknown("jobs"):
            raise
        is_kept = bool(idempotency_key) or keep_key(client.api, body, key)
        raise _not_known(error, file, _name_in(mapping), key, is_kept) from error
    if output != "table":
        print_data(answer, output)
    else:
        sys.stdout.write(f"{answer['job']} {answer['state']}\n")
    print_notes(answer.get("notes", ()))
    return 0


def _not_known(error: BaseException, file: str, name: str, key: str, is_kept: bool) -> Failure:
    """The failure that names the command that finds out and the one that repeats the submission, which is harmless."""
    from colo_common.model.submission import job_id

    why = str(error) or "interrupted"
    again = f"colo submit -f {shlex.quote(file)}"
    if not is_kept or file == "-":
        again += f" --idempotency-key {shlex.quote(key)}"
    return Failure(
        f"{why}: it is not known whether the job was accepted\n"
        f"  to find out:           colo get job {job_id(name, key)}\n"
        f"  to repeat, never twice: {again}",
        NOT_KNOWN,
    )


def _name_in(mapping: dict[str, Any]) -> str:
    from colo_common.model.job_file import job_from_mapping

    return job_from_mapping(mapping).name


def print_notes(notes: Sequence[str]) -> None:
    """Print on stderr what the gateway read otherwise than it is written in the file."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


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
