"""A replica attempt as a name on the machine, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.placement import attempt_key, parse_replica_token, replica_token

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
NUMBERS = st.integers(0, 999_999_999)


def test_a_token_has_neither_slash_nor_hash() -> None:
    assert replica_token("job-1/main/0", 3) == "job-1.main.0@3"
    assert attempt_key("job-1/main/0", 3) == "job-1/main/0#3"


@given(LABELS, LABELS, NUMBERS, st.integers(1, 999_999_999))
def test_every_token_leads_back_to_its_attempt(job: str, task: str, index: int, attempt: int) -> None:
    replica = f"{job}/{task}/{index}"
    assert parse_replica_token(replica_token(replica, attempt)) == (replica, attempt)


@given(st.text(max_size=40))
def test_what_is_read_as_a_token_is_written_as_the_same_text(text: str) -> None:
    found = parse_replica_token(text)
    assert found is None or replica_token(*found) == text


def test_the_longest_labels_lead_back_and_longer_ones_do_not() -> None:
    longest = "a" * 63
    assert parse_replica_token(f"{longest}.{longest}.0@1") == (f"{longest}/{longest}/0", 1)
    assert parse_replica_token(f"{longest}a.main.0@1") is None
    assert parse_replica_token(f"job.{longest}a.0@1") is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        "batch",
        "job.main.0",
        "job.main.0@0",
        "job.main.0@01",
        "job.main.00@1",
        "job.main.-1@1",
        "job.main.x@1",
        "job.main@1",
        "a.b.c.0@1",
        "-job.main.0@1",
        "job-.main.0@1",
        "Job.main.0@1",
        "job..0@1",
        "job.main.0@1\n",
        " job.main.0@1",
        "job.main.0@1@2",
        "job/main/0#1",
        "job.main.٣@1",
        "job.main.0@1234567890",
    ],
)
def test_a_name_of_another_form_is_no_token(token: str) -> None:
    assert parse_replica_token(token) is None
