"""What a release hands out: the wheel and the source distribution are built, and each alone makes a machine with the command line.

The environments are new ones with the base dependencies, so that whatever imports more than those fails here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.repo.tree import ROOT, SERVICES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The import names of what only services, tests and optional parts need.
EXTRAS: Final = (
    "aiohttp", "hiredis", "hypothesis", "jwt", "nats", "nkeys", "numpy", "opentelemetry", "prometheus_client", "pytest", "redis",
    "structlog",
)  # fmt: skip


def run(*words: str | Path, cwd: Path, status: int = 0) -> str:
    """What a command prints, both streams; it must end with this exit code. It sees nothing of this environment's packages."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COLO_", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def build(source: Path, into: Path, *targets: str) -> None:
    """Build with the hatchling of this environment, so that nothing is fetched for it."""
    words = [word for target in targets for word in ("--target", target)]
    run(sys.executable, "-m", "hatchling", "build", *words, "--directory", into, cwd=source)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel, the source distribution, and the wheel that the source distribution makes where it is unpacked."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "wheel", "sdist")
    name = f"colo-{PROJECT['version']}"
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        # Python has filters since 3.11.4.
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    again = folder / "again"
    build(folder / name, again, "wheel")
    wheel = f"{name}-py3-none-any.whl"
    return {"wheel": folder / wheel, "sdist": again / wheel, "unpacked": folder / name}


def test_the_source_distribution_makes_the_same_wheel(made: dict[str, Path]) -> None:
    own, again = contents(made["wheel"]), contents(made["sdist"])
    assert own.keys() == again.keys()
    assert [name for name in own if own[name] != again[name]] == []
    packages = {name.partition("/")[0] for name in own if name.endswith("/__init__.py")}
    assert packages == {"colo_common", "colo_sim", "colo_cli", *(f"colo_{service}" for service in SERVICES)}
    assert all(f"{package}/py.typed" in own for package in packages)
    assert not [name for name in own if name.startswith(("tests", "docs"))]


def test_the_source_distribution_has_what_its_own_pages_name(made: dict[str, Path]) -> None:
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "docs/install.md",
        "examples/job.yaml",
        "justfile",
        "asyncapi.yaml",
    ):
        assert (made["unpacked"] / name).read_bytes() == (ROOT / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_fresh_environment_has_the_command_line_and_nothing_of_services(
    made: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True, symlinks=True)
    python, colo = home / "bin" / "python", home / "bin" / "colo"
    run(python, "-m", "pip", "install", "--quiet", "--no-input", "--only-binary", ":all:", made[kind], cwd=tmp_path)
    program = "import importlib.util, sys; print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
    assert run(python, "-c", program, *EXTRAS, cwd=tmp_path) == "[]\n"
    assert run(colo, "version", cwd=tmp_path).startswith(f"colo {PROJECT['version']}, python ")
    assert "Usage: colo COMMAND" in run(colo, "--help", cwd=tmp_path)
    for words in (("submit", "--help"), ("get", "audit", "--help"), ("lab", "--help"), ("help", "exit-codes")):
        assert run(colo, *words, cwd=tmp_path)
    # Whatever asks a gateway gets as far as asking.
    for words in (("get", "jobs"), ("status",), ("get", "audit")):
        assert "no gateway answers" in _failed(colo, words, tmp_path)
    # What needs more says so, and how it is had.
    for service in ("gateway", "jobs", "executor"):
        sentence = run(colo, service, cwd=tmp_path, status=1)
        assert re.fullmatch(r"colo: this command needs [a-z_]+: pip install 'colo\[services\]'\n", sentence), sentence


def _failed(colo: Path, words: Sequence[str], cwd: Path) -> str:
    return run(colo, *words, "--api", "http://127.0.0.1:9", cwd=cwd, status=1)
