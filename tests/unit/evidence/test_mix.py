"""The requests and machines that placement is measured with."""

import gzip
from itertools import islice
from pathlib import Path

import pytest

from colo_common.model.invalid import InvalidInput
from tests.bench.openb import MIB
from tests.evidence.fleets import Machine, openb_fleet, uniform_fleet
from tests.evidence.mix import Ask, Mix, read_mix, real_mix

HEADER = "name,cpu_milli,memory_mib,num_gpu,qos,creation_time\n"
PODS = HEADER + "b,2000,16,0,LS,7\na,1000,0,0,BE,3\nc,2000,16,0,BE,7\n"


def test_the_real_mix_has_the_trace_s_classes_and_pods() -> None:
    mix = real_mix()
    assert len(mix.classes) == 103
    assert sum(count for _, count in mix.classes) == 8_152
    assert min(ask.memory_bytes for ask, _ in mix.classes) == MIB


def test_a_seed_decides_the_order_and_another_seed_another() -> None:
    first, again, other = (list(islice(real_mix().asks(seed), 50)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_class_that_is_left_out_is_never_asked_for() -> None:
    mix = Mix("", ((Ask(1, 1), 5), (Ask(4, 1), 1)), (Ask(4, 1), Ask(1, 1)))
    assert mix.mean_mcpu == 1
    assert mix.without([Ask(4, 1)]) == Mix("", ((Ask(1, 1), 5),), (Ask(1, 1),))


@pytest.mark.parametrize("name", ["pods.csv", "pods.csv.gz"])
def test_a_trace_is_told_in_the_order_of_creation_and_again_from_the_start(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(PODS.encode()) if name.endswith(".gz") else PODS.encode())
    mix = read_mix(path)
    small, large = Ask(1_000, MIB), Ask(2_000, 16 * MIB)
    assert mix.classes == ((large, 2), (small, 1))
    assert list(islice(mix.asks(9), 5)) == [small, large, large, small, large]


@pytest.mark.parametrize(
    ("text", "delivered"),
    [
        ("name,cpu_milli\n", "pods.csv line 1: must have the columns cpu_milli memory_mib creation_time"),
        (HEADER, "pods.csv: must have from 1 to 1000000 pods"),
        (HEADER + "a,-1,16,0,LS,0\n", "pods.csv line 2 cpu_milli: must be a whole number from 1"),
        (HEADER + "a,0,16,0,LS,0\n", "pods.csv line 2 cpu_milli: must be a whole number from 1"),
        (HEADER + "a,1.5,16,0,LS,0\n", "pods.csv line 2 cpu_milli: must be a whole number"),
        (HEADER + "a,1000,,0,LS,0\n", "pods.csv line 2 memory_mib: must be a whole number from 0"),
        (HEADER + "a,1000,1\n", "pods.csv line 2 creation_time: must be a whole number"),
        (HEADER + "a,99999999999,1,0,LS,0\n", "pods.csv line 2 cpu_milli: must be a whole number"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_line_and_column(tmp_path: Path, text: str, delivered: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_mix(path)
    assert str(refused.value).startswith(delivered)


def test_the_openb_fleet_is_the_trace_s_and_a_smaller_one_is_alike() -> None:
    fleet = openb_fleet(1_523)
    assert fleet.cpu_mcpu == 125_514_000
    assert fleet.memory_bytes == 612_028_416 * MIB
    assert len(set(fleet.machines)) == 19
    small = openb_fleet(100)
    assert len(small.machines) == 100
    assert small.machines.count(Machine(2, 1, 48_000, 192 * 1_024 * MIB)) == 39
    assert small.cpu_mcpu == pytest.approx(fleet.cpu_mcpu * 100 / 1_523, rel=0.02)
    assert all(machine.topology.validate() is None for machine in set(fleet.machines))


def test_the_uniform_machine_has_two_sockets_of_two_zones() -> None:
    (machine,) = set(uniform_fleet(3).machines)
    assert machine.socket_of_zone == (0, 0, 1, 1)
    assert (machine.cpu_mcpu, machine.memory_bytes) == (96_000, 384 << 30)
    assert [zone.socket for zone in machine.topology.zones] == [0, 0, 1, 1]
    assert machine.holds(Ask(96_000, 384 << 30))
    assert not machine.holds(Ask(96_001, 1))
