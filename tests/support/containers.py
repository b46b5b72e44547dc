"""The lab in containers, for tests: `docker compose` under a name of its own, on free ports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tests.support.ports import free_ports

__all__ = ["FOLDER", "Containers", "answered", "engine"]

T = TypeVar("T")
FOLDER: Final = Path(__file__).parents[2] / "compose"
#: Pictures and traces are left out where their images are not there; everything else must be.
OPTIONAL: Final = {"grafana": "GRAFANA_IMAGE", "traces": "TRACES_IMAGE"}


class Containers:
    """`docker compose` for a project of this run, with free ports."""

    def __init__(self, docker: str) -> None:
        self._docker = docker
        self.project = f"colo-test-{os.getpid()}"
        names = ("API_PORT", "NATS_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT", "TRACES_PORT")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        ports = {name: str(port) for name, port in self.ports.items()}
        self.environment = {**os.environ, **ports}
        if "traces" not in self.services():
            self.environment["COLO_OTLP_ENDPOINT"] = ""
        self.first_placement_s = 0.0

    def docker(self, *words: str, limit_s: float = 60) -> str:
        """The output of a command of the engine. Fails the test with what it said on its errors."""
        done = subprocess.run(
            [self._docker, *words],
            cwd=FOLDER,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr[-2000:]}"
        return done.stdout

    def compose(self, *words: str, limit_s: float = 180) -> str:
        """The output of a command of Compose, for this project."""
        text = self.docker("compose", "--profile", "observe", "-p", self.project, *words, limit_s=limit_s)
        # Compose 2.26 clears the line before each line of a log, also where it is no terminal.
        return text.replace("\x1b[2K", "")

    def services(self) -> list[str]:
        """The services whose images are there."""
        found = self.compose("config", "--services").split()
        images = {name: each["image"] for name, each in self._config()["services"].items()}
        return [name for name in found if name not in OPTIONAL or self._has(images[name])]

    def up(self, *words: str) -> None:
        """Start without building and pulling; return when everything is healthy."""
        self.compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", "150", *words, *self.services())

    def leftovers(self) -> list[str]:
        """The containers, volumes and networks that the engine has of this project."""
        mine = ("--quiet", "--filter", f"label=com.docker.compose.project={self.project}")
        kinds = (("container", "--all"), ("volume",), ("network",))
        return [each for kind, *all_ in kinds for each in self.docker(kind, "ls", *all_, *mine).split()]

    def get(self, port: str, path: str, **query: str) -> Any:
        """The JSON that a published port answers."""
        url = f"http://127.0.0.1:{self.ports[port]}{path}"
        if query:
            url += f"?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())

    def secret(self, name: str) -> str:
        """The key of a user, as the lab tells it to a person."""
        return self.compose("run", "--rm", "--no-deps", "secrets", "show", name)

    def address_of(self, service: str) -> str:
        """The address of a service's only container, which this machine reaches by the engine's bridge."""
        container = self.compose("ps", "--quiet", service).strip()
        found = json.loads(self.docker("inspect", container))[0]["NetworkSettings"]["Networks"]
        return str(next(iter(found.values()))["IPAddress"])

    def change(self, method: str, path: str, body: object = None) -> Any:
        """Ask the gateway to change something; returns what its JSON means."""
        url = f"http://127.0.0.1:{self.ports['API_PORT']}{path}"
        data, headers = (
            (None, {}) if body is None else (json.dumps(body).encode(), {"Content-Type": "application/json"})
        )
        request = urllib.request.Request(url, method=method, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def _config(self) -> Any:
        return json.loads(self.compose("config", "--format", "json"))

    def _has(self, image: str) -> bool:
        return (
            subprocess.run([self._docker, "image", "inspect", image], capture_output=True, check=False).returncode == 0
        )


def answered(ask: Callable[[], T]) -> T | None:
    """What `ask` returns; None from a service that does not answer yet."""
    try:
        return ask()
    except (OSError, KeyError, TypeError):
        return None


def engine() -> str:
    """The `docker` program with Compose v2, an engine that answers and the images. Skips, and says what is missing."""
    docker = os.environ.get("DOCKER") or shutil.which("docker")
    if docker is None:
        pytest.skip("NOT PROVED: there is no docker program")
    for words, what in (
        (("info",), "no Docker engine answers"),
        (("compose", "version"), "Compose v2 is not installed"),
        (("image", "inspect", os.environ.get("COLO_IMAGE", "colo:local")), "there is no image: just image"),
    ):
        done = subprocess.run([docker, *words], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            pytest.skip(f"NOT PROVED: {what} (docker {' '.join(words)})")
    return docker
