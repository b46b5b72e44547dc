"""Which users of this machine are jobs' already: those of the attempts that run, and of ended ones whose outputs are kept."""

import contextlib
import os
from pathlib import Path

from colo_common.model.placement import parse_replica_token
from colo_executor.attempt import job_of
from colo_executor.process.launch import attempts_dir
from colo_executor.process.output import OUTPUTS

__all__ = ["job_users"]


def job_users(output_dir: Path) -> dict[int, str]:
    """The job of each user, by who owns the outputs. The disk is asked, because it knows the attempts of earlier executors, too."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError), os.scandir(attempts_dir(output_dir)) as entries:
        for entry in entries:
            if (parsed := parse_replica_token(entry.name)) is None:
                continue
            with contextlib.suppress(OSError):
                owner = os.stat(os.path.join(entry.path, OUTPUTS[0]), follow_symlinks=False).st_uid
                found[owner] = job_of(parsed[0])
    return found
