"""As which user a replica runs: the rule of the operator, by the tenant of its job.

An executor that is root runs nobody's job as root whose tenant the rule does not name so. Without a rule and without a prefix, by
which the operator may say it in his own words, each job is a user of a range that belongs to nobody.
"""

import re
import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput

__all__ = ["EVERY_OTHER", "NOBODYS", "NO_NEW_PRIVS", "UserIds", "account_of", "check_users", "prefix_of"]

#: In the rule: every tenant that it does not name.
EVERY_OTHER: Final = "*"
#: The users of jobs where the operator says nothing: no account of a machine, of systemd or of a container has one of them, so that
#: a job finds no file and no process of its user but its own. The account "nobody" has some on many machines.
NOBODYS: Final = "2000000000-2000065535"
#: The command that gains no right by a program's file, as the executor's own user.
NO_NEW_PRIVS: Final = ("setpriv", "--no-new-privs", "--")
_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_UID_MAX: Final = (1 << 32) - 2
_FIELD: Final = "process_users"


class UserIds(NamedTuple):
    """A user and his group, as numbers."""

    uid: int
    gid: int


#: The account of a user's name. Raises KeyError for one that the machine does not know.
Lookup = Callable[[str], UserIds]


def check_users(users: Mapping[str, str], lookup: Lookup) -> None:
    """Raise InvalidInput for a user that cannot be one, and for root where no tenant is named."""
    for tenant, user in users.items():
        first, _last = _numbers(tenant, user, lookup)
        if tenant == EVERY_OTHER and first.uid == 0:
            raise InvalidInput(_FIELD, "must name a tenant whose jobs are to be root; every other is not", f"*={user}")


def account_of(
    users: Mapping[str, str],
    tenant: str,
    job: str,
    lookup: Lookup,
    *,
    has_prefix: bool = False,
    is_root: bool = True,
    taken: Callable[[], Mapping[int, str]] = dict,
) -> UserIds | None:
    """The account of a replica; None where it is the prefix's to say, or the executor's own because that is not root.

    Of a range each job gets a number, the same on every node, or the next one that no other job has there: `taken` says whose each
    is. A job keeps the one that it has. Only in a range that is all taken jobs share a number. Raises InvalidInput where the rule
    says nothing about the tenant and no prefix stands in for it.
    """
    tenant = tenant or "default"
    rule = users if users or has_prefix or not is_root else {EVERY_OTHER: NOBODYS}
    user = rule.get(tenant, rule.get(EVERY_OTHER))
    if user is None:
        if users and not has_prefix:
            raise InvalidInput(
                _FIELD, f'must name a user for this tenant, or for every other by "{EVERY_OTHER}"', tenant
            )
        return None
    first, last = _numbers(tenant, user, lookup)
    if last == first.uid:
        return first
    chosen = _chosen(range(first.uid, last + 1), job, taken())
    return UserIds(chosen, chosen)


def _chosen(numbers: range, job: str, taken: Mapping[int, str]) -> int:
    if (
        own := next((number for number in sorted(taken) if number in numbers and taken[number] == job), None)
    ) is not None:
        return own
    begin = zlib.crc32(job.encode()) % len(numbers)
    # More than are taken are never looked at.
    turns = (numbers[(begin + step) % len(numbers)] for step in range(min(len(numbers), len(taken) + 1)))
    return next((number for number in turns if number not in taken), numbers[begin])


def prefix_of(account: UserIds) -> tuple[str, ...]:
    """The command that becomes the account, with its group alone, no capability and no way to more."""
    return (
        "setpriv", f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups", "--inh-caps=-all",
        "--no-new-privs", "--",
    )  # fmt: skip


def _numbers(tenant: str, user: str, lookup: Lookup) -> tuple[UserIds, int]:
    """The first account and the last number of it."""
    match = _RANGE.fullmatch(user)
    if match is None:
        try:
            found = lookup(user)
        except KeyError as error:
            rule = "must be a user of this machine, a number, or a range such as 200000-200999"
            raise InvalidInput(_FIELD, rule, f"{tenant}={user}") from error
        return found, found.uid
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last <= _UID_MAX or (first == 0 and last > 0):
        raise InvalidInput(_FIELD, "must be a range that rises and does not begin with root", f"{tenant}={user}")
    return UserIds(first, first), last
