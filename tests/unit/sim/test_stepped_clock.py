"""A simulated node's clock stands at its step."""

from colo_sim.stepped_clock import SteppedClock
from tests.support.manual_clock import ManualClock


def test_the_clock_stands_at_the_step_and_never_goes_back() -> None:
    process = ManualClock(1_000)
    clock = SteppedClock(process)
    process.advance(5_000)
    assert clock.now_ms() == 1_000
    clock.step_to(3_000)
    clock.step_to(2_000)
    assert clock.now_ms() == 3_000
    assert clock.wall_us() == process.wall_us()
    assert clock.real_s(500) == process.real_s(500)
