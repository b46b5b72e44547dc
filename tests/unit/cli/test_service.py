"""Services as commands, and the command line without what only services need."""

import subprocess
import sys

import pytest

from colo_cli.main import main
from colo_cli.service import SERVICES
from tests.repo import tree

#: Runs `colo ARGUMENTS` as if nothing but the dependencies of the command line were installed.
ALONE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"aiohttp", "nats", "numpy", "opentelemetry", "prometheus_client", "redis", "structlog"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from colo_cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def alone(*words: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", ALONE, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_service_is_a_command():
    assert set(tree.SERVICES) < set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_explains_its_settings(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["colo"])
    assert main([name, "--help"]) == 0
    assert f"colo {name}: every setting is --key, COLO_{name.upper()}_KEY" in capsys.readouterr().out


def test_a_service_refuses_a_setting_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["colo"])
    assert main(["jobs", "--nats-ulr", "x"]) == 2
    assert capsys.readouterr().err == "colo jobs: --nats-ulr: there is no such setting; did you mean nats_url?\n"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("version",), 0, "colo "),
        (("doctor",), 0, "machine"),
        (("get", "nodes", "--api", "http://127.0.0.1:9"), 1, "no gateway answers at http://127.0.0.1:9"),
        (("get", "services", "--api", "http://127.0.0.1:9"), 1, "no gateway answers at http://127.0.0.1:9"),
        (("plan", "-f", "examples/job.yaml", "--api", "http://127.0.0.1:9"), 2, "no gateway answers"),
        (("scheduler",), 1, "pip install 'colo[services]'"),
        (("lab",), 1, "pip install 'colo[lab]'"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_the_command_line_needs_nothing_that_only_services_need(words: tuple[str, ...], status: int, says: str):
    code, text = alone(*words)
    assert says in text
    assert code == status
