"""Settings: which source wins, what text becomes, and that everything wrong is said at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Struct

from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.settings import BadSettings, Common, common_of, keys_of, load


class Rack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    height_units: int = 42


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    place: str
    racks: tuple[Rack, ...] = ()


class Settings(Struct, frozen=True, kw_only=True):
    common: Common = Common()
    freshness: FreshnessPolicy = FreshnessPolicy()
    margin_pct: Annotated[int, msgspec.Meta(ge=0, le=100)] = 10
    ratio: float = 0.5
    quick: bool = False
    names: tuple[str, ...] = ("a",)
    labels: dict[str, str] = {}
    limit: int | None = None
    mode: Literal["x", "y"] = "x"
    guard: Literal["off", "some"] = "some"
    rows: tuple[Row, ...] = ()
    spare: dict[str, Rack] = {}


class Strict(Struct, frozen=True, kw_only=True):
    node: str
    low: int = 1
    high: int = 2

    def validate(self) -> None:
        if self.low > self.high:
            raise InvalidInput("low", "must not be above high", self.low)


def loaded(argv: tuple[str, ...] = (), environ: dict[str, str] | None = None, file: Path | None = None) -> Settings:
    return load(Settings, "scheduler", argv, environ or {}, file)


def test_without_sources_there_are_the_defaults() -> None:
    assert loaded() == Settings()


@pytest.mark.parametrize(
    ("argv", "environ", "file", "expected"),
    [
        ((), {}, "margin_pct: 20", 20),
        ((), {}, "margin_pct: 20\nscheduler:\n  margin_pct: 30", 30),
        ((), {"COLO_MARGIN_PCT": "40"}, "scheduler: {margin_pct: 30}", 40),
        ((), {"COLO_MARGIN_PCT": "40", "COLO_SCHEDULER_MARGIN_PCT": "50"}, "margin_pct: 20", 50),
        (("--margin-pct", "60"), {"COLO_SCHEDULER_MARGIN_PCT": "50"}, "margin_pct: 20", 60),
        (("--margin-pct=60",), {"COLO_MARGIN_PCT": "50"}, "", 60),
        (("--margin-pct", "60", "--margin-pct", "70"), {}, "", 70),
    ],
)
def test_the_nearer_source_wins(
    tmp_path: Path, argv: tuple[str, ...], environ: dict[str, str], file: str, expected: int
) -> None:
    path = tmp_path / "colo.yaml"
    path.write_text(file)
    assert loaded(argv, environ, path).margin_pct == expected


@pytest.mark.parametrize(
    ("flag", "key", "value"),
    [
        ("--ratio=2", "ratio", 2.0),
        ("--ratio=1e-3", "ratio", 0.001),
        ("--quick", "quick", True),
        ("--quick=no", "quick", False),
        ("--no-quick", "quick", False),
        ("--quick=on", "quick", True),
        ("--names=b, c,", "names", ("b", "c")),
        ("--names=", "names", ()),
        ("--labels=zone=a,rack=7", "labels", {"zone": "a", "rack": "7"}),
        ("--limit=5", "limit", 5),
        ("--limit=none", "limit", None),
        ("--mode=y", "mode", "y"),
        ("--guard=off", "guard", "off"),
        ("--guard=false", "guard", "off"),
        ("--rows=", "rows", ()),
        ("--rows=[]", "rows", ()),
        (
            '--rows=[{"place": "a, b"}, {"place": "c", "racks": [{"name": "x=y", "height_units": 2}]}]',
            "rows",
            (Row(place="a, b"), Row(place="c", racks=(Rack(name="x=y", height_units=2),))),
        ),
        ('--spare={"a": {"name": "b"}}', "spare", {"a": Rack(name="b")}),
    ],
)
def test_text_becomes_what_the_key_is(flag: str, key: str, value: object) -> None:
    assert getattr(loaded((flag,)), key) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b", ': must be JSON such as [{"place": ...}]; at character 1: expecting value (got "a,b")'),
        ('[{"place": "a"', ": must be JSON such as"),
        ("[" * 100_000, ': must be JSON such as [{"place": ...}] (got "[[['),
        ('{"place": "a"}', ': must be a list (got {"place": "a"})'),
        ('["a"]', '[0]: must be members and values (got "a")'),
        ('[{"racks": []}]', '[0].place: must be given (got {"racks": []})'),
        (
            '[{"place": "a", "racks": [{"name": "b", "height_units": "2"}]}]',
            "[0].racks[0].height_units: must be a whole",
        ),
        ('[{"place": "a"}, {"place": 3}]', "[1].place: must be text (got 3)"),
        ('[{"place": "a", "rack": 3}]', "[0].rack: there is no such member; did you mean racks? (got 3)"),
        (
            '[{"place": "a", "racks": [{"name": "b", "hight": null}]}]',
            "[0].racks[0].hight: there is no such member; did you mean height_units? (got nothing)",
        ),
    ],
)
def test_what_is_wrong_with_a_list_of_structs_is_said_of_the_member_in_words(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(BadSettings) as caught:
        loaded((f"--rows={text}",), {"COLO_ROWS": text, "COLO_SCHEDULER_ROWS": text})
    heads = [f"{name}{problem}" for name in ("COLO_ROWS", "COLO_SCHEDULER_ROWS", "--rows")]
    assert [given.startswith(head) for given, head in zip(caught.value.problems, heads, strict=True)] == [True] * 3
    if not problem.startswith(": must be JSON"):
        path = tmp_path / "colo.yaml"
        path.write_text(f"rows: {text}\n")
        with pytest.raises(BadSettings) as caught:
            loaded(file=path)
        assert str(caught.value).startswith(f"{path}: rows{problem}")


def test_a_map_of_structs_is_named_as_a_whole() -> None:
    with pytest.raises(BadSettings, match=r'--spare: must be JSON such as \{"...": \{"name": ...\}\}; at character 1'):
        loaded(("--spare=a=b",))
    with pytest.raises(BadSettings, match=r"--spare.*: Expected `str`, got `int`"):
        loaded(('--spare={"a": {"name": 1}}',))


@pytest.mark.parametrize("word", ["off", "'off'", "false"])
def test_a_word_that_yaml_takes_for_a_truth_is_the_word(tmp_path: Path, word: str) -> None:
    path = tmp_path / "colo.yaml"
    path.write_text(f"guard: {word}\n")
    assert loaded(file=path).guard == "off"
    path.write_text("guard: on\n")
    with pytest.raises(BadSettings, match="guard: must be one of off, some"):
        loaded(file=path)


def test_common_keys_are_plain_and_other_structs_put_their_name_before() -> None:
    found = loaded(("--nats-url", "nats://x:1", "--freshness-stale-after-ms", "7"))
    assert found.common.nats_url == "nats://x:1"
    assert found.freshness == FreshnessPolicy(stale_after_ms=7)
    assert {"nats_url", "freshness_stale_after_ms", "margin_pct"} <= set(keys_of(Settings))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("colo.yaml", "nats_url: nats://y:2\nfreshness:\n  lost_after_ms: 9\nnames: [p, q]\njobs:\n  anything: 1\n"),
        (
            "colo.toml",
            'nats_url = "nats://y:2"\nnames = ["p", "q"]\n[freshness]\nlost_after_ms = 9\n[jobs]\nanything = 1\n',
        ),
    ],
)
def test_files_have_tables_for_structs_and_sections_for_services(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    for found in (
        loaded(file=path),
        loaded(("--config", str(path))),
        loaded(environ={"COLO_CONFIG": str(path)}),
    ):
        assert found.common.nats_url == "nats://y:2"
        assert found.freshness == FreshnessPolicy(lost_after_ms=9)
        assert found.names == ("p", "q")


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "colo.yaml"
    path.write_text("margin_pct: '20'\nmargn_pct: 3\nscheduler: {quick: 1}\n")
    with pytest.raises(BadSettings) as caught:
        loaded(
            ("--ratio", "much", "--nats", "x", "word", "--mode=z", "--limit"),
            {"COLO_HTTP_PORT": "eighty", "COLO_SCHEDULER_MARGIN": "1", "COLO_JOBS_MARGIN": "1"},
            path,
        )
    text = "\n".join(caught.value.problems)
    for piece in (
        "margin_pct: Expected `int`, got `str`",
        "margn_pct: there is no such setting; did you mean margin_pct?",
        "quick: Expected `bool`, got `int`",
        '--ratio: Expected `float`, got `str` (got "much")',
        "--nats: there is no such setting",
        "word: flags look like",
        "--mode: must be one of ",
        "--limit: needs a value",
        "COLO_HTTP_PORT: Expected `int`, got `str`",
        "COLO_SCHEDULER_MARGIN: there is no such setting",
    ):
        assert piece in text
    assert "COLO_JOBS_MARGIN" not in text
    assert str(caught.value) == text


def test_limits_of_a_key_are_kept() -> None:
    with pytest.raises(BadSettings, match="<= 100"):
        loaded(("--margin-pct", "101"))


def test_a_key_without_default_must_be_given_and_rules_between_keys_are_kept() -> None:
    with pytest.raises(BadSettings, match=r"node: must be given \(--node or COLO_NODE\)"):
        load(Strict, "collector")
    with pytest.raises(BadSettings, match="low: must not be above high"):
        load(Strict, "collector", ["--node", "n", "--low", "3"])
    assert load(Strict, "collector", ["--node", "n"]) == Strict(node="n")


@pytest.mark.parametrize(("name", "text"), [("colo.yaml", "a: [1"), ("colo.toml", "a = "), ("colo.yaml", "- a\n- b\n")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadSettings, match=name):
        loaded(file=path)
    with pytest.raises(BadSettings, match="missing"):
        loaded(file=tmp_path / "missing.yaml")


def test_common_is_found_embedded_or_inherited() -> None:
    class Inherits(Common, frozen=True, kw_only=True):
        own: int = 1

    assert common_of(Settings(common=Common(nats_url="x"))).nats_url == "x"
    assert common_of(load(Inherits, "x", ["--nats-url", "y"])).nats_url == "y"
    with pytest.raises(TypeError, match="Strict"):
        common_of(Strict(node="n"))
