"""Trace files of every format, and every way a file can be wrong."""

import gzip
import io
import json
import sys
import tarfile
from pathlib import Path

import pytest

from colo_common.model.invalid import InvalidInput
from colo_sim.trace import Load
from colo_sim.trace_readers import FLEET_PACKAGE, default_trace, fleet_trace_path, read_trace

ALIBABA = "m_1,100,40,90,,,43.04,33.08,5\nm_1,110,42,90,,,1,1,1\nm_1,120,,90,,,1,1,1\nm_2,105,10,20,,,1,1,1\n"
LONG = "time,node,cpu_pct,mem_pct\n0,a,10,50\n0,b,20,60\n60.5,a,30.25,50\n"
FLEET = "cpu_util_percent,mem_util_percent,net_in\n16.126976521322472,87.1,1\n18.5,86.8,1\n"


def written(folder: Path, text: str, name: str = "load.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def a_matrix(*series: tuple[dict[str, str], list[list[object]]], **changed: object) -> str:
    data = {"resultType": "matrix", "result": [{"metric": metric, "values": values} for metric, values in series]}
    return json.dumps({"status": "success", "data": data, **changed})


@pytest.mark.parametrize("name", ["load.csv", "load.csv.gz", "anything"])
def test_alibaba_machine_usage_is_recognised_by_content(tmp_path: Path, name: str) -> None:
    read = read_trace(written(tmp_path, ALIBABA, name))
    assert read.format_name == "alibaba"
    assert [one.name for one in read.trace.series] == ["m_1", "m_2"]
    assert read.trace.series[0].t_ms == (0, 10_000)
    assert read.trace.at(0, 5_000) == Load(410_000, 900_000)
    assert read.trace.at(1, 0) == Load(100_000, 200_000)
    assert (read.rows, read.skipped) == (3, {"missing": 1})
    assert any("1 values left out because they are missing" in notice for notice in read.notices)


def test_values_alibaba_marks_as_invalid_are_left_out(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, ALIBABA + "m_3,1,101,20,,,1,1,1\nm_3,2,-1,20,,,1,1,1\nm_3,3,5,5,,,1,1,1\n"))
    assert read.skipped == {"marked invalid": 2, "missing": 1}
    assert read.trace.series[2].cpu_ppm == (50_000,)


def test_a_long_table_is_read(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, LONG))
    assert read.format_name == "long"
    assert read.trace.series[0].t_ms == (0, 60_500)
    assert read.trace.series[0].cpu_ppm == (100_000, 302_500)
    assert not read.trace.is_fleet_mean


def test_a_fleet_mean_has_no_time_column_and_is_marked(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, FLEET))
    assert read.format_name == "fleet"
    assert read.trace.is_fleet_mean
    assert read.trace.series[0].t_ms == (0, 300_000)
    assert read.trace.series[0].cpu_ppm == (161_270, 185_000)
    named = read_trace(written(tmp_path, FLEET, "machine_usage_grouped_30_seconds.csv"))
    assert named.trace.series[0].t_ms == (0, 30_000)


def test_a_fleet_mean_of_google_is_in_parts_of_one(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, "cpu_util,mem_util,assigned_mem\n0.4416155,0.3323842,0.62\n0.5,0.25,0.6\n"))
    assert read.format_name == "fleet"
    assert read.trace.series[0].cpu_ppm == (441_616, 500_000)


@pytest.mark.parametrize("between", [",", " ", "\t", ";", "  ,  "])
def test_a_virtual_machine_of_google_is_percents_of_cpu_and_memory_every_five_minutes(
    tmp_path: Path, between: str
) -> None:
    read = read_trace(written(tmp_path, f"21.5{between}19.6\n30{between}20\n\n", "vm_17.txt"))
    assert read.format_name == "pairs"
    (series,) = read.trace.series
    assert (series.name, series.t_ms, series.cpu_ppm) == ("vm_17", (0, 300_000), (215_000, 300_000))
    assert read.trace.at(0, 0) == Load(215_000, 196_000)
    assert not read.trace.is_fleet_mean


def an_archive(folder: Path, *files: tuple[str, str], name: str = "VMs.tar.gz") -> Path:
    path = folder / name
    with tarfile.open(path, "w:gz" if name.endswith(".gz") else "w") as archive:
        for file, text in files:
            member = tarfile.TarInfo(file)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize("name", ["VMs.tar.gz", "VMs.tar", "anything"])
def test_an_archive_of_virtual_machines_is_one_trace(tmp_path: Path, name: str) -> None:
    files = (("VMs/2.txt", "10,20\n30,40\n"), ("VMs/._2.txt", "\0"), ("VMs/1.txt", "5,6\n"))
    read = read_trace(an_archive(tmp_path, *files, name=name))
    assert [series.name for series in read.trace.series] == ["1", "2"]
    assert read.trace.series[1].cpu_ppm == (100_000, 300_000)
    assert read.rows == 3


@pytest.mark.parametrize(
    ("files", "field", "rule"),
    [
        pytest.param((("a.txt", "1,2\n3,nan\n"),), "VMs.tar a.txt line 2", "must be CPU percent and", id="NaN"),
        pytest.param((("a.txt", "1,2\n101,3\n"),), "VMs.tar a.txt line 2 CPU percent", "from 0 to 100", id="above"),
        pytest.param((("a.txt", "1,2\n"), ("b.txt", LONG)), "VMs.tar b.txt line 1", "an archive must", id="other"),
        pytest.param((("a.txt", "1,2\n"), ("x/a.txt", "1,2\n")), "VMs.tar a.txt line 1 time", "ascend", id="twice"),
        pytest.param((("._a.txt", "1,2\n"),), "VMs.tar", "at least one sample", id="nothing"),
    ],
)
def test_a_wrong_file_in_an_archive_is_named(
    tmp_path: Path, files: tuple[tuple[str, str], ...], field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_trace(an_archive(tmp_path, *files, name="VMs.tar"))
    assert (caught.value.field, rule in caught.value.rule) == (field, True)


def test_an_archive_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = an_archive(tmp_path, ("a.txt", "1,2\n" * 2_000), name="VMs.tar")
    path.write_bytes(path.read_bytes()[:3_000])
    with pytest.raises(InvalidInput, match=r"^VMs\.tar: must be a whole archive"):
        read_trace(path)


def test_gaps_are_noticed_and_held(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, "time,node,cpu_pct,mem_pct\n0,a,10,50\n1000,a,20,50\n"))
    assert read.notices == ("load.csv: 1 gaps are longer than 300 s (the longest 1000 s); the load is held over them",)
    assert read.trace.at(0, 999_999).cpu_ppm == 100_000


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        pytest.param("", "load.csv", "must not be empty", id="empty file"),
        pytest.param("\n\n", "load.csv", "must not be empty", id="blank file"),
        pytest.param("timestamp,host,cpu,mem\n0,a,1,1\n", "load.csv line 1", "must be the header", id="wrong header"),
        pytest.param("time,node,cpu_pct,mem_pct\n", "load.csv", "at least one sample", id="header only"),
        pytest.param(LONG + "61,a,nan,50\n", "load.csv line 5 cpu_pct", "NaN is refused", id="NaN"),
        pytest.param(LONG + "61,a,inf,50\n", "load.csv line 5 cpu_pct", "must be finite", id="infinite"),
        pytest.param(LONG + "61,a,101,50\n", "load.csv line 5 cpu_pct", "from 0 to 100", id="above 100"),
        pytest.param(LONG + "61,a,1,-0.5\n", "load.csv line 5 mem_pct", "from 0 to 100", id="below 0"),
        pytest.param(LONG + "61,a,high,50\n", "load.csv line 5 cpu_pct", "must be a number", id="no number"),
        pytest.param(LONG + "60,a,1,50\n", "load.csv line 5 time", "must ascend", id="out of order"),
        pytest.param(LONG + "60.5,a,1,50\n", "load.csv line 5 time", "must ascend", id="a time twice"),
        pytest.param(LONG + "-1,c,1,50\n", "load.csv line 5 time", "seconds from 0", id="negative time"),
        pytest.param(LONG + "61,a,1\n", "load.csv line 5", "must have 4 columns", id="a column short"),
        pytest.param(LONG + "61,,1,1\n", "load.csv line 5 node", "must not be empty", id="no node"),
        pytest.param("\n" + LONG + "61,a,nan,50\n", "load.csv line 6 cpu_pct", "NaN", id="blank lines count"),
        pytest.param(ALIBABA + "m_2,1,1,1,,,1,1,1\n", "load.csv line 5 time", "must ascend", id="alibaba out of order"),
        pytest.param(ALIBABA + "m_2,200,1\n", "load.csv line 5", "must have 9 columns", id="alibaba cut row"),
        pytest.param(FLEET + "1\n", "load.csv line 4", "must have 3 columns", id="fleet cut row"),
        pytest.param("{", "load.csv", "must be the JSON answer", id="cut JSON"),
        pytest.param("[1]", "load.csv", "must be the JSON answer", id="other JSON"),
    ],
)
def test_a_wrong_file_gets_one_sentence_with_file_line_and_rule(
    tmp_path: Path, text: str, field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_trace(written(tmp_path, text))
    assert caught.value.field == field
    assert rule in caught.value.rule
    assert "\n" not in str(caught.value)


def test_invalid_values_may_be_left_out_and_counted(tmp_path: Path) -> None:
    read = read_trace(
        written(tmp_path, LONG + "61,a,nan,50\n62,a,1000,50\n63,a,5,50\n2,a,5,50\n9\n"), skip_invalid=True
    )
    assert read.skipped == {"invalid": 4}
    assert any(
        "4 values left out because they are invalid, the first one because load.csv line" in one for one in read.notices
    )
    assert read.trace.series[0].cpu_ppm[-1] == 50_000


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"absent.csv: must be a readable file \(No such file or directory\)"):
        read_trace(tmp_path / "absent.csv")
    with pytest.raises(InvalidInput, match="must be a readable file"):
        read_trace(tmp_path)
    broken = tmp_path / "cut.gz"
    broken.write_bytes(gzip.compress(LONG.encode())[:-9])
    with pytest.raises(InvalidInput, match="must be a whole gzip file"):
        read_trace(broken)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"time,node,cpu_pct,mem_pct\n\xff\xfe\n")
    with pytest.raises(InvalidInput, match="must be UTF-8 text"):
        read_trace(binary)


def test_a_range_query_answer_is_read_as_ratio_when_nothing_is_above_one(tmp_path: Path) -> None:
    text = a_matrix(
        ({"instance": "b:9100"}, [[1700000000, "0.25"], [1700000060.5, "0.5"]]),
        ({"instance": "a:9100"}, [[1700000000, "1"]]),
    )
    read = read_trace(written(tmp_path, text, "answer.json"))
    assert read.format_name == "prometheus"
    assert [one.name for one in read.trace.series] == ["a:9100", "b:9100"]
    assert read.trace.series[1].cpu_ppm == (250_000, 500_000)
    assert read.trace.series[1].t_ms == (0, 60_500)
    assert read.trace.series[1].mem_ppm == (500_000, 500_000)
    assert read.notices[0] == "cpu values are read as ratio, because none is above 1"


@pytest.mark.parametrize(
    ("metric", "value", "unit", "cpu_ppm"),
    [
        pytest.param({"node": "a"}, "40", None, 400_000, id="above one is percent"),
        pytest.param({"node": "a"}, "0.5", "percent", 5_000, id="asked percent wins"),
        pytest.param({"node": "a", "__name__": "cpu_pct"}, "0.5", None, 5_000, id="the name says percent"),
        pytest.param({"node": "a", "__name__": "cpu_ratio"}, "0.5", None, 500_000, id="the name says ratio"),
        pytest.param({}, "0.5", None, 500_000, id="an only series needs no label"),
    ],
)
def test_percent_or_ratio_is_decided_by_the_stated_rule(tmp_path: Path, metric, value, unit, cpu_ppm) -> None:
    read = read_trace(written(tmp_path, a_matrix((metric, [[10, value]])), "answer.json"), unit=unit)
    assert read.trace.series[0].cpu_ppm == (cpu_ppm,)


def test_memory_series_are_joined_to_their_node(tmp_path: Path) -> None:
    text = a_matrix(
        ({"node": "a", "resource": "cpu"}, [[10, "50"], [20, "60"], [30, "70"]]),
        ({"node": "a", "resource": "memory"}, [[10, "0.8"], [30, "0.9"]]),
    )
    read = read_trace(written(tmp_path, text, "answer.json"))
    assert read.trace.series[0].mem_ppm == (800_000, 800_000, 900_000)


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        pytest.param(a_matrix(status="error", error="bad query"), "status", "success", id="an error answer"),
        pytest.param(a_matrix(data={"resultType": "vector", "result": []}), "resultType", "matrix", id="instant query"),
        pytest.param(a_matrix(), "data.result", "at least one CPU series", id="no series"),
        pytest.param(a_matrix(({"node": "a"}, [[1, 0.5]])), "data.result", "[time, text]", id="value not text"),
        pytest.param(a_matrix(({"node": "a"}, [[1, "NaN"]])), "cpu of a", "NaN is refused", id="NaN"),
        pytest.param(a_matrix(({"node": "a"}, [[2, "1"], [1, "1"]])), "values[1] time", "must ascend", id="order"),
        pytest.param(a_matrix(({"x": "1"}, []), ({"x": "2"}, [])), "metric", "one of the labels", id="no node label"),
        pytest.param(a_matrix(({"node": "a"}, []), ({"node": "a"}, [])), "metric", "the only cpu", id="node twice"),
        pytest.param(a_matrix(({"node": "a"}, [[1, "0.5"], [2, "150"]])), "cpu of a", "from 0 to 100", id="above 100"),
    ],
)
def test_a_wrong_answer_names_its_part_and_rule(tmp_path: Path, text: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_trace(written(tmp_path, text, "answer.json"))
    assert field in caught.value.field
    assert rule in caught.value.rule
    assert caught.value.field.startswith("answer.json")


def test_the_fleet_series_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / FLEET_PACKAGE / "alibaba2018"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "machine_usage_grouped_300_seconds.csv").write_text(FLEET)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, FLEET_PACKAGE, raising=False)
    assert fleet_trace_path() == folder / "machine_usage_grouped_300_seconds.csv"
    assert fleet_trace_path(30) is None
    read = default_trace()
    assert FLEET_PACKAGE not in sys.modules
    assert read.trace.is_fleet_mean
    assert not read.trace.is_synthetic
    assert "Alibaba" in read.notices[0]


def test_without_any_trace_a_notice_names_the_synthetic_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colo_sim.trace_readers.fleet_trace_path", lambda: None)
    read = default_trace(seed=3)
    assert read.trace.is_synthetic
    assert "synthetic" in read.notices[0]
    assert default_trace(seed=3).trace == read.trace
    assert default_trace(seed=4).trace != read.trace
    numbers = read.trace.series[0].statistics()
    assert 35 < numbers.cpu_mean_pct < 43
    assert numbers.span_ms + numbers.step_ms == 86_400_000
