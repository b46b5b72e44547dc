"""As which user the jobs of a tenant run, and what an operator may not write."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_executor.process.job_users import job_users
from colo_executor.process.run_as import EVERY_OTHER, NOBODYS, UserIds, account_of, check_users, prefix_of
from colo_executor.process.run_prefix import run_prefix
from colo_executor.process.settings import ProcessPolicy
from tests.support.builders import a_placement

KNOWN = {"root": UserIds(0, 0), "batch": UserIds(990, 980)}
RULE = {"red": "200000-200999", "blue": "batch", "system": "root", "*": "65534"}


@pytest.mark.parametrize(
    ("tenant", "account"),
    [
        ("blue", UserIds(990, 980)),
        ("system", UserIds(0, 0)),
        ("green", UserIds(65534, 65534)),
        ("default", UserIds(65534, 65534)),
        ("", UserIds(65534, 65534)),
    ],
)
def test_a_tenant_is_the_user_of_the_rule(tenant: str, account: UserIds) -> None:
    assert account_of(RULE, tenant, "job", KNOWN.__getitem__) == account


def test_jobs_of_a_range_are_different_users_and_the_same_again() -> None:
    found = [account_of(RULE, "red", f"job-{number}", KNOWN.__getitem__) for number in range(50)]
    assert found == [account_of(RULE, "red", f"job-{number}", KNOWN.__getitem__) for number in range(50)]
    assert all(each is not None and 200_000 <= each.uid <= 200_999 and each.gid == each.uid for each in found)
    assert len(set(found)) > 40


def test_two_jobs_of_a_node_share_a_number_only_where_the_range_has_no_other() -> None:
    taken: dict[int, str] = {}
    rule = {"red": "200000-200009", "blue": "200000-200009"}
    for number in range(10):
        found = account_of(rule, ("red", "blue")[number % 2], f"job-{number}", KNOWN.__getitem__, taken=lambda: taken)
        assert found is not None
        assert found.uid not in taken
        taken[found.uid] = f"job-{number}"
    for uid, job in taken.items():
        assert account_of(rule, "red", job, KNOWN.__getitem__, taken=lambda: taken) == UserIds(uid, uid)
    more = account_of(rule, "red", "job-10", KNOWN.__getitem__, taken=lambda: taken)
    assert more is not None
    assert more.uid in taken


def test_whose_a_number_is_the_outputs_of_the_attempts_say(tmp_path: Path) -> None:
    for token in ("job.main.0@1", "other.main.0@1", "no-attempt"):
        directory = tmp_path / "attempts" / token
        directory.mkdir(parents=True)
        (directory / "stdout").touch()
    (tmp_path / "attempts" / "other.main.0@1" / "stdout").unlink()
    assert job_users(tmp_path) == {os.geteuid(): "job"}
    assert job_users(tmp_path / "nowhere") == {}


@pytest.mark.parametrize("tenant", ["red", "default", ""])
def test_without_a_rule_no_job_of_an_executor_that_is_root_is_root(tenant: str) -> None:
    first, last = map(int, NOBODYS.split("-"))
    found = account_of({}, tenant, "job", KNOWN.__getitem__)
    assert found is not None
    assert first <= found.uid == found.gid <= last
    check_users({EVERY_OTHER: NOBODYS}, KNOWN.__getitem__)
    # Another executor's own user, and a prefix, are not root's.
    assert account_of({}, tenant, "job", KNOWN.__getitem__, is_root=False) is None
    assert account_of({}, tenant, "job", KNOWN.__getitem__, has_prefix=True) is None


@pytest.mark.parametrize("is_root", [True, False])
def test_a_tenant_that_the_rule_leaves_out_is_refused(is_root: bool) -> None:
    with pytest.raises(InvalidInput, match='for every other by "\\*" \\(got "red"\\)') as refused:
        account_of({"blue": "batch"}, "red", "job", KNOWN.__getitem__, is_root=is_root)
    assert refused.value.field == "process_users"
    assert account_of({"blue": "batch"}, "red", "job", KNOWN.__getitem__, has_prefix=True, is_root=is_root) is None


@pytest.mark.parametrize(
    "users",
    [
        {"*": "root"},
        {"*": "0"},
        {"red": "0-10"},
        {"red": "20-10"},
        {"red": "99999999999"},
        {"red": "4294967295"},
        {"red": "nobody-knows"},
        {"red": "-5"},
    ],
    ids=str,
)
def test_a_rule_that_cannot_be_one_is_refused(users: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_users(users, KNOWN.__getitem__)
    assert refused.value.field == "process_users"


def test_the_rule_of_this_page_is_one() -> None:
    assert check_users(RULE, KNOWN.__getitem__) is None
    assert prefix_of(UserIds(7, 8))[:3] == ("setpriv", "--reuid=7", "--regid=8")


def test_the_program_that_changes_the_user_is_named_by_its_file(tmp_path: Path) -> None:
    """A shell may have one of that name built in that knows no user; where there is none on the path, its name is all there is."""
    (tmp_path / "setpriv").touch(mode=0o755)
    policy = ProcessPolicy(users={"*": "65534"}, path=str(tmp_path))
    account, words = run_prefix(policy, a_placement(), ("unshare", "--"), ())
    assert account == UserIds(65534, 65534)
    assert words[:4] == ("unshare", "--", f"{tmp_path}/setpriv", "--reuid=65534")
    _, words = run_prefix(replace(policy, path="/nowhere"), a_placement(), (), ())
    assert words[0] == "setpriv"
