"""`colo node restore`: take colo off this machine's kernel, without a control plane."""

import asyncio
import os
from typing import Annotated

from cyclopts import Parameter

from colo_cli.failure import Failure
from colo_cli.output import SettingWords, print_text

__all__ = ["restore"]


def restore(*settings: SettingWords, yes: Annotated[bool, Parameter(negative=())] = False) -> int:
    """End every replica of this machine, remove colo's control groups, and give each kernel file the value from before.

    The executor must not run. A value that cannot be put back is named, and the journal is kept for another try. Without the
    executor's journal (--process-state-dir) the old values of other groups are not known, which is said, and the exit code is 2.

    Args:
        settings: the executor's settings: --process-state-dir, --process-subtree, --config and more.
        yes: Do it: replicas are ended without their grace.
    """
    if not yes:
        raise Failure("ends every replica of this machine and removes colo's control groups: say --yes", 2)
    from colo_common.runtime.settings import load
    from colo_executor.main import NAME, restore
    from colo_executor.settings import ExecutorSettings

    asyncio.run(restore(load(ExecutorSettings, NAME, settings, os.environ)))
    print_text("the kernel is as it was before colo; every replica has ended")
    return 0
