"""The command `colo submit -f job.yaml`."""

import json
import secrets
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.failure import CommandRefused, Failure, NoReply
from colo_cli.job_files import JobInFile, read_job_files
from colo_cli.output import Format, print_data
from colo_cli.pending_submission import keep_key, take_key

if TYPE_CHECKING:
    from colo_gateway.replies import Submitted

__all__ = ["print_notes", "submit"]

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
    """Submit the job that a file describes, or several: all are checked before the first is submitted.

    Ends with 0 when all are accepted, 1 when one is refused, 2 for a wrong file, 3 when nobody knows whether one was accepted; the
    same command again is then the same submission.

    Args:
        file: A job file, or a Kubernetes Pod or Deployment (YAML or JSON), or several: documents between "---", a list, a List;
            "-" reads standard input.
        idempotency_key: Submitting again with the same key and file is the same submission.
        check_index: Only while the plan that printed this index still holds; 0 asks that no unfinished job has the name. One job
            only.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    jobs = read_job_files(file)
    if check_index and len(jobs) > 1:
        raise Failure(f"check index: belongs to one job, and {file} has {len(jobs)}", 2)
    client = Client(api)
    bodies = [json.dumps(job.mapping).encode() for job in jobs]
    _check_all(client, file, jobs, bodies)
    whole = b"\n".join(bodies)
    kept = "" if idempotency_key else take_key(client.api, whole)
    if kept:
        print("repeats the submission of which it was not known whether it was accepted", file=sys.stderr)
    # The key makes repeated requests one submission.
    key = idempotency_key or kept or secrets.token_hex(16)
    from colo_gateway.replies import Submitted

    answers: list[Any] = []
    accepted: list[Submitted] = []
    for number, (job, body) in enumerate(zip(jobs, bodies, strict=True), start=1):
        own = key if len(jobs) == 1 else f"{key}.{number}"
        headers = {"Content-Type": "application/json", "Idempotency-Key": own}
        if check_index:
            headers["Check-Index"] = check_index
        try:
            answers.append(client.call("POST", "/v1/jobs", body, **headers))
            accepted.append(answer_as(answers[-1], Submitted))
        except (NoReply, CommandRefused, KeyboardInterrupt) as error:
            is_unknown = not isinstance(error, CommandRefused) or error.is_unknown("jobs")
            if not is_unknown and not answers:
                raise
            # The same command again then repeats what was accepted, and submits the rest.
            is_kept = bool(idempotency_key) or keep_key(client.api, whole, key)
            again = _again(file, key, is_kept)
            raise _stopped(error, job, own, again, accepted, is_unknown=is_unknown) from error
        if output == "table":
            sys.stdout.write(f"{accepted[-1].job} {accepted[-1].state}\n")
    if output != "table":
        print_data(answers[0] if len(jobs) == 1 else {"jobs": answers}, output)
    for each in accepted:
        print_notes(each.notes)
    return 0


def _check_all(client: Client, file: str, jobs: Sequence[JobInFile], bodies: Sequence[bytes]) -> None:
    """Ask the gateway about each of several jobs before the first is submitted: it refuses a plan by the rules of a submission."""
    if len(jobs) == 1:
        return
    for job, body in zip(jobs, bodies, strict=True):
        try:
            client.call("POST", "/v1/plan?places=0", body, **{"Content-Type": "application/json"})
        except CommandRefused as error:
            raise Failure(f"{file}: {job.where}: {error}; nothing was submitted", error.status) from error


def _again(file: str, key: str, is_kept: bool) -> str:
    """The command that repeats the submission."""
    again = f"colo submit -f {shlex.quote(file)}"
    return again if is_kept and file != "-" else f"{again} --idempotency-key {shlex.quote(key)}"


def _stopped(
    error: BaseException, job: JobInFile, key: str, again: str, accepted: "Sequence[Submitted]", *, is_unknown: bool
) -> Failure:
    """The failure that says what was accepted, and names the commands that find out and that repeat it, which is harmless."""
    from colo_common.model.submission import job_id

    before = "".join(f"  accepted before:       {each.job}\n" for each in accepted)
    if not is_unknown:
        why = f"{job.title}: {error}; it and what follows it were not submitted\n"
        return Failure(f"{why}{before}  to submit the rest:    {again}", 1)
    whose = f"{job.title} was" if job.where else "the job was"
    return Failure(
        f"{str(error) or 'interrupted'}: it is not known whether {whose} accepted\n{before}"
        f"  to find out:           colo get job {job_id(job.name, key)}\n"
        f"  to repeat, never twice: {again}",
        NOT_KNOWN,
    )


def print_notes(notes: Sequence[str]) -> None:
    """Print on stderr what the gateway read otherwise than it is written in the file."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
