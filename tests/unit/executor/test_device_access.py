"""The writes that lead from the rules of devices that the kernel shows to those that are wanted, played on a small kernel."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_executor.device_access import ALL, access_writes, rules_in
from colo_executor.knob_table import Knob
from colo_executor.knobs import agrees, text_of


def played(shown: str, writes: tuple[tuple[str, str], ...]) -> str:
    """What the kernel shows after the writes (linux/security/device_cgroup.c)."""
    access = rules_in(shown)
    for name, text in writes:
        if text == "a":
            access = None if name == "devices.allow" else {}
            continue
        assert access is not None, "a rule is written while everything is open"
        device, _, modes = text.rpartition(" ")
        before = access.get(device, frozenset())
        access[device] = before | set(modes) if name == "devices.allow" else before - set(modes)
    if access is None:
        return ALL
    return "\n".join(
        f"{device} {''.join(mode for mode in 'rwm' if mode in modes)}" for device, modes in access.items() if modes
    )


@pytest.mark.parametrize(
    ("shown", "wanted", "count"),
    [
        (ALL, "c 1:3 rwm\nb *:* m", 3),
        ("c 1:3 rwm", "c 1:3 rwm", 0),
        ("c 1:3 rwm\nb *:* m", "b *:* m\nc 1:3 rwm", 0),
        ("c 1:3 rwm\nc 1:11 r", "c 1:3 rwm", 1),
        ("c 1:3 rm", "c 1:3 rwm", 1),
        ("c 1:3 rwm", "c 1:3 r", 1),
        ("c 1:3 rm", "c 1:3 rw", 2),
        ("", "c 1:3 rwm", 1),
        ("c 1:3 rwm", ALL, 1),
        (ALL, ALL, 0),
    ],
)
def test_the_writes_lead_to_what_is_wanted_and_leave_open_what_stays_open(shown: str, wanted: str, count: int) -> None:
    writes = access_writes(shown, wanted)
    assert len(writes) == count
    assert rules_in(played(shown, writes)) == rules_in(wanted)
    both = (rules_in(shown) or {}).items() & (rules_in(wanted) or {}).items()
    for done in range(len(writes)):
        if rules_in(shown) is not None and rules_in(wanted) is not None:
            assert both <= (rules_in(played(shown, writes[:done])) or {}).items()


def test_rules_are_the_same_in_any_order_and_text_of_another_form_is_refused() -> None:
    assert agrees(Knob.DEVICES, 1, "c 1:3 rwm\nc 1:5 r", "c 1:5 r\nc 1:3 rwm")
    assert not agrees(Knob.DEVICES, 1, "c 1:3 rwm", ALL)
    assert text_of(Knob.DEVICES, 1, ALL) == ALL
    for text in ("c 1:3 ", "c 1:3 x", "d 1:3 r", "c 1:3 r; c 1:5 r"):
        with pytest.raises(InvalidInput):
            text_of(Knob.DEVICES, 1, text)
