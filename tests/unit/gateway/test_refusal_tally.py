"""However many logins a server refuses: few lines that together count all of them."""

from __future__ import annotations

from colo_common.adapters.redis_refusals import news_of
from colo_common.ports import RefusedLogin
from colo_gateway.door.refusal_tally import RefusalTally


def refused(address: str, who: str = "eve", times: int = 1, server: str = "nats") -> RefusedLogin:
    return RefusedLogin(server=server, who=who, address=address, why="authentication failure", times=times)


def test_ten_thousand_of_one_address_are_a_few_and_all_are_counted() -> None:
    tally = RefusalTally()
    published: list[RefusedLogin] = []
    # A hundred a second for 100 s, looked at every other second.
    for second in range(100):
        for number in range(100):
            tally.note(refused("192.0.2.1", f"user-{number}"))
        if second % 2 == 0:
            published += tally.take(float(second))
    published += tally.take(200.0)
    assert sum(each.times for each in published) == 10_000
    assert len(published) <= 4
    assert {each.who for each in published} == {"user-99"}, "the newest of them"


def test_ten_thousand_addresses_are_a_few_and_all_are_counted() -> None:
    tally = RefusalTally()
    for number in range(10_000):
        tally.note(refused(f"2001:db8::{number:x}", times=2 if number == 7 else 1))
    published = tally.take(0.0)
    assert tally.take(1.0) == []
    assert sum(each.times for each in published) == 10_001
    assert (published[0].address, published[0].times) == ("2001:db8::7", 2)
    assert (len(published), published[-1].address, published[-1].who) == (11, "several", "")


def test_a_new_address_is_published_at_once_beside_a_flood() -> None:
    tally = RefusalTally()
    tally.note(refused("192.0.2.1"))
    assert len(tally.take(0.0)) == 1
    tally.note(refused("192.0.2.1"))
    tally.note(refused("192.0.2.2"))
    tally.note(refused("192.0.2.1", server="redis"))
    assert [(each.server, each.address) for each in tally.take(2.0)] == [("nats", "192.0.2.2"), ("redis", "192.0.2.1")]
    assert [(each.address, each.times) for each in tally.take(60.0)] == [("192.0.2.1", 1)]


def entry(number: int, count: int, reason: str = "auth", about: str = "AUTH") -> dict[str, object]:
    return {
        "entry-id": number, "timestamp-created": 5, "count": count, "reason": reason, "object": about,
        "username": "eve", "client-info": "id=7 addr=192.0.2.1:4711 laddr=192.0.2.9:6379 name=x addr=1.2.3.4:5 user=default",
    }  # fmt: skip


def test_of_the_log_of_redis_only_what_is_more_than_before_is_news() -> None:
    found, seen = news_of([entry(1, 3, "key", "colo:v1:job"), entry(0, 2)], b"{}")
    assert [(each.who, each.address, each.times, each.is_known) for each in found] == [
        ("eve", "192.0.2.1", 2, False),
        ("eve", "192.0.2.1", 3, True),
    ]
    assert found[1].why == "has no right to the key colo:v1:job"
    assert seen == {"0:5": 2, "1:5": 3}
    found, _ = news_of([entry(1, 4, "key", "colo:v1:job"), entry(0, 2)], b'{"0:5": 2, "1:5": 3}')
    assert [each.times for each in found] == [1]
    for broken in (b"", b"[]", b"{", b'{"0:5": "x"}', b"\xff"):
        assert news_of([entry(0, 2)], broken)[1] == {"0:5": 2}
