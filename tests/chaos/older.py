"""The older version that a run mixes in: one that is known to differ, and what differs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from tests.chaos.cluster import ROOT

__all__ = ["OLDER", "OLDER_SHARED", "Older", "older_tree"]


class Older(Struct, frozen=True, kw_only=True):
    """A revision, and what it says, understands or stores otherwise than this one."""

    revision: str
    differs: str


#: A version some commits back often differs in nothing, so that this one is named. To be replaced where its promises are given up.
OLDER: Final = Older(
    revision="1022ce89",
    differs="requests, replies and orders to stop name no partition of the jobs, waiting replicas have no turn, and jobs stores no "
    "marks of facts that it missed",
)
#: The first one of which several instances may share the jobs.
OLDER_SHARED: Final = Older(revision="7b12b6d8", differs="jobs stores no marks of facts that it missed")


def older_tree(directory: Path, revision: str, *, is_shared: bool) -> Path:
    """A checkout of a revision, in which instances may share the jobs when `is_shared`. Raises InvalidInput with the reason."""
    try:
        made = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "--format=tar", revision, "libs", "apps", "services"],
            check=True,
            capture_output=True,
        )
        directory.mkdir()
        subprocess.run(["tar", "-x", "-C", str(directory)], input=made.stdout, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise InvalidInput(
            "old", "must be a revision of this checkout, which may not be a shallow one", revision
        ) from None
    if is_shared and "partitions:" not in (directory / "services/jobs/colo_jobs/settings.py").read_text("utf-8"):
        raise InvalidInput("old", "must be a version that knows partitions of the jobs", revision)
    return directory
