"""A process refuses servers of other machines that let in everybody."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.runtime.access import check_reach
from colo_common.runtime.settings import Common

FAR_NATS = "nats://192.0.2.1:4222"
FAR_REDIS = "redis://192.0.2.1:6379/0"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"nats_url": FAR_NATS}, "nats_url"),
        ({"nats_url": f"nats://127.0.0.1:4222,{FAR_NATS}"}, "nats_url"),
        ({"nats_url": "nats://0.0.0.0:4222"}, "nats_url"),
        ({"nats_url": FAR_NATS, "nats_ca_file": "x"}, "nats_url"),
        ({"redis_url": FAR_REDIS}, "redis_url"),
        ({"redis_url": "redis+sentinel://192.0.2.1:26379/primary"}, "redis_url"),
    ],
)
def test_it_says_which_and_what_to_do(given: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_reach(Common(**given))  # type: ignore[arg-type]
    assert refused.value.field == field
    assert "`colo admin credentials init`" in refused.value.rule
    assert "insecure_servers" in refused.value.rule


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"nats_url": "nats://localhost:4222,nats://[::1]:4223", "redis_url": "unix:///run/redis.sock?db=0"},
        {"nats_url": "nats://colo:secret@192.0.2.1:4222", "redis_url": "redis://:secret@192.0.2.1:6379/0"},
        {"nats_url": FAR_NATS, "nats_nkey_file": "x", "redis_url": FAR_REDIS, "redis_password_file": "x"},
        {"nats_url": FAR_NATS, "nats_cert_file": "x", "redis_url": "rediss://192.0.2.1/0", "redis_cert_file": "x"},
        {"nats_url": FAR_NATS, "redis_url": FAR_REDIS, "insecure_servers": True},
    ],
)
def test_a_server_of_this_machine_or_one_that_asks_is_taken(given: dict[str, object]) -> None:
    assert check_reach(Common(**given)) is None  # type: ignore[arg-type]
