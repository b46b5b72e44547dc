"""What precedes a job's command on this node, and which user it becomes by that."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from colo_common.model.placement import Placement
from colo_executor.process.job_users import job_users
from colo_executor.process.machine import account_of_name
from colo_executor.process.run_as import NO_NEW_PRIVS, UserIds, account_of, prefix_of
from colo_executor.process.settings import ProcessPolicy

__all__ = ["run_prefix"]


def run_prefix(
    policy: ProcessPolicy, placement: Placement, namespaces: tuple[str, ...], output_dirs: Iterable[Path]
) -> tuple[UserIds | None, tuple[str, ...]]:
    """The account, None where the prefix of the settings says it or it is the executor's own, and the words before the command.

    The words make `namespaces` of the command's own, and then the command another user's: by the rule of users, else the prefix of
    the settings. In `output_dirs` is whose user each is. Raises InvalidInput for a tenant that the rule leaves out.
    """
    has_prefix = bool(policy.command_prefix)
    account = account_of(
        policy.users,
        placement.tenant,
        placement.job,
        account_of_name,
        has_prefix=has_prefix,
        is_root=os.geteuid() == 0,
        taken=lambda: {user: job for each in output_dirs for user, job in job_users(each).items()},
    )
    if account is not None:
        return account, (*namespaces, *_found(prefix_of(account), policy.path))
    if has_prefix or not policy.hygiene.no_new_privs:
        return None, (*namespaces, *policy.command_prefix)
    return None, (*namespaces, *_found(NO_NEW_PRIVS, policy.path))


def _found(words: tuple[str, ...], path: str) -> tuple[str, ...]:
    """The words with the program where it is: a shell may have one of that name built in, which changes no user."""
    return (shutil.which(words[0], path=path) or words[0], *words[1:])
