"""The image holds what the lock says and nothing that an attacker could use; its bill of materials is the lock."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.repo.test_release import locked, normal
from tests.repo.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return {normal(each): version for each, version in PINNED.findall((ROOT / "image" / name).read_text())}


def names(dependencies: list[str]) -> set[str]:
    return {normal(re.split(r"[\s;<>=!\[]", each, maxsplit=1)[0]) for each in dependencies}


def test_the_locks_of_the_image_are_parts_of_the_lock():
    for name in ("requirements.lock", "build.lock"):
        found = pins(name)
        assert found
        assert found.items() <= locked().items(), "run `just lock`"


def test_the_image_has_what_services_need_and_no_tool_for_work_on_colo():
    extras = PROJECT["optional-dependencies"]
    optional = [each for extra in ("services", "otlp", "nkeys", "oidc") for each in extras[extra]]
    needed = names(PROJECT["dependencies"] + optional) - {"colo"}
    assert needed <= pins("requirements.lock").keys()
    assert not (names(extras["dev"] + extras["test"]) - needed - {"colo"}) & pins("requirements.lock").keys()


def test_every_pin_of_the_image_has_a_hash_and_no_address():
    for name in ("requirements.lock", "build.lock"):
        text = (ROOT / "image" / name).read_text()
        assert "://" not in text
        lines = [each for each in text.replace("\\\n", " ").splitlines() if each and not each.startswith("#")]
        assert lines
        assert all(re.match(r"[A-Za-z0-9._-]+==\S+.*--hash=sha256:[0-9a-f]{64}", each) for each in lines)


def test_the_image_runs_as_nobody_who_is_somebody_and_installs_by_hash_only():
    text = (ROOT / "Dockerfile").read_text()
    final = text[text.rindex("\nFROM ") :]
    assert "\nUSER 65532:65532\n" in final
    assert '\nENTRYPOINT ["colo"]\n' in final
    assert "pip" not in final
    installs = [each for each in text.split("&&") if re.search(r"\bpip\b.* install ", each)]
    assert len(installs) == 4
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)
    built = [each for each in text.split("&&") if re.search(r"\bpip\b.* wheel ", each)]
    assert all("--no-build-isolation" in each and "--no-deps" in each for each in built)
    assert "# syntax=" not in text


def test_what_is_copied_into_the_image_is_let_through_and_nothing_else_is():
    copied = set()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
        copied |= {each.partition("/")[0] for each in sources.split()}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines.index("*") < min(lines.index(each) for each in lines if each.startswith("!"))
    assert {each[1:] for each in lines if each.startswith("!")} == copied


def test_the_bill_of_materials_names_every_pin_and_is_the_same_twice():
    command = [sys.executable, str(ROOT / "image" / "sbom.py"), str(ROOT / "image" / "requirements.lock")]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first == second
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert {each["name"]: each["version"] for each in bill["components"]} == pins("requirements.lock")
    assert all(each["properties"] for each in bill["components"])


def test_the_bill_of_materials_wants_one_lock():
    done = subprocess.run(
        [sys.executable, str(ROOT / "image" / "sbom.py")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "sbom: give the lock file and nothing else\n")


@pytest.mark.enable_socket
@pytest.mark.parametrize(("words", "asked", "status"), [((), 1, 1), (("--within=20",), 3, 0)])
def test_the_health_check_asks_on_for_as_long_as_it_is_told(words: tuple[str, ...], asked: int, status: int):
    paths: list[str] = []

    class Starting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            body = b"" if len(paths) > 2 else b"[-]nats not yet"
            self.send_response(503 if body else 200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on the screen."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-IS", str(ROOT / "image" / "ready.py"), *words, f"127.0.0.1:{server.server_port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        server.shutdown()
    assert paths == ["/readyz?verbose"] * asked
    assert (done.returncode, "nats not yet" in done.stdout) == (status, status == 1)
