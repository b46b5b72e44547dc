"""How the command line bears with a gateway whose services do not answer yet."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from colo_cli.client import Client
from colo_cli.failure import CommandRefused, Failure
from colo_cli.main import main
from colo_cli.submit import submit
from colo_common.model.submission import job_id

pytestmark = pytest.mark.enable_socket

STARTING = {"status": 503, "field": "scheduler", "rule": "does not answer now", "got": ""}
ACCEPTED = {"job": "a-1", "state": "Inqueue", "version": 1}


class Gateway:
    """Answers 503 so many times, then what is asked for; keeps what it was asked."""

    def __init__(self, unavailable: int) -> None:
        self.unavailable = unavailable
        self.asked: list[tuple[str, str, str]] = []
        self.api = ""

    def answer(self, method: str, path: str, key: str) -> tuple[int, dict[str, Any]]:
        self.asked.append((method, path, key))
        return (503, STARTING) if len(self.asked) <= self.unavailable else (200, ACCEPTED)


@contextmanager
def a_gateway(unavailable: int) -> Iterator[Gateway]:
    gateway = Gateway(unavailable)

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, body = gateway.answer(self.command, self.path, self.headers.get("Idempotency-Key", ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        gateway.api = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield gateway
        finally:
            server.shutdown()
            serving.join()


def test_a_service_that_does_not_answer_yet_is_waited_for_and_that_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with a_gateway(unavailable=2) as gateway:
        assert Client(gateway.api).get("/v1/plan") == ACCEPTED
    assert len(gateway.asked) == 3
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "scheduler: does not answer now; waiting for it, 10 s at most\n")


def test_after_the_time_it_is_refused_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        a_gateway(unavailable=100) as gateway,
        pytest.raises(CommandRefused, match="scheduler: does not answer now") as caught,
    ):
        Client(gateway.api, retry_for_s=0.3).get("/v1/plan")
    assert (caught.value.code, caught.value.status) == (503, 1)
    assert len(gateway.asked) in (2, 3)
    assert "0.3 s at most" in capsys.readouterr().err


def test_what_takes_something_away_is_asked_for_once(capsys: pytest.CaptureFixture[str]) -> None:
    with a_gateway(unavailable=100) as gateway, pytest.raises(CommandRefused):
        Client(gateway.api).call("DELETE", "/v1/jobs/a")
    assert len(gateway.asked) == 1
    assert capsys.readouterr().err == ""


def test_a_gateway_that_is_not_there_is_not_waited_for() -> None:
    # A port that is this test's own and that nobody listens on.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Failure, match="no gateway answers at"):
            Client(f"http://127.0.0.1:{taken.getsockname()[1]}").get("/v1/jobs")


@pytest.mark.parametrize("given", ["", "mine"])
def test_a_job_that_had_to_be_submitted_again_is_one_job(tmp_path: Any, given: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{name: a, tasks: [{name: main, replicas: 1, command: [sleep, '1'], cpu: 1, memory: 1Gi}]}")
    with a_gateway(unavailable=1) as gateway:
        assert submit(file=str(file), idempotency_key=given, api=gateway.api) == 0
    keys = {key for _, _, key in gateway.asked}
    assert len(gateway.asked) == 2
    assert len(keys) == 1
    assert keys == {given} if given else len(keys.pop()) == 32


def _job_file(tmp_path: Any) -> str:
    file = tmp_path / "job.yaml"
    file.write_text("{name: a, command: [sleep, '1'], cpu: 1, memory: 1Gi}")
    return str(file)


def test_a_submission_without_an_answer_says_how_to_find_out_and_is_repeated_by_the_same_command(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("colo_cli.client._PAUSE_S", 0.01)
    monkeypatch.setattr(Client.__init__, "__kwdefaults__", {"retry_for_s": 0.05})
    file = _job_file(tmp_path)
    silent = {**STARTING, "field": "jobs"}
    monkeypatch.setitem(STARTING, "field", "jobs")
    with a_gateway(unavailable=10_000) as gateway:
        with pytest.raises(Failure) as unknown:
            submit(file=file, api=gateway.api)
        keys = {key for _, _, key in gateway.asked}
        (key,) = keys
        assert unknown.value.status == 3
        assert str(unknown.value) == (
            f"jobs: {silent['rule']}: it is not known whether the job was accepted\n"
            f"  to find out:           colo get job {job_id('a', key)}\n"
            f"  to repeat, never twice: colo submit -f {file}"
        )
        capsys.readouterr()
        gateway.unavailable = 0
        assert submit(file=file, api=gateway.api) == 0
        assert gateway.asked[-1][2] == key
        assert capsys.readouterr().err == "repeats the submission of which it was not known whether it was accepted\n"
        # That is settled now: the next one is a job of its own.
        assert submit(file=file, api=gateway.api) == 0
        assert gateway.asked[-1][2] != key


def test_a_key_that_cannot_be_kept_is_printed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("no directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(Client.__init__, "__kwdefaults__", {"retry_for_s": 0.01})
    monkeypatch.setitem(STARTING, "field", "jobs")
    with a_gateway(unavailable=10_000) as gateway, pytest.raises(Failure) as unknown:
        submit(file=_job_file(tmp_path), api=gateway.api)
    assert str(unknown.value).endswith(f" --idempotency-key {gateway.asked[0][2]}")


def test_a_refusal_that_settles_it_keeps_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(Client.__init__, "__kwdefaults__", {"retry_for_s": 0.01})
    # The plan was asked of the scheduler before anything was submitted.
    with a_gateway(unavailable=10_000) as gateway, pytest.raises(CommandRefused) as refused:
        submit(file=_job_file(tmp_path), check_index="0", api=gateway.api)
    assert refused.value.status == 1
    assert not (tmp_path / "state").exists()


def test_an_answer_of_another_version_is_told_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with a_gateway(unavailable=0) as gateway:
        assert main(["history", "node", "n1", "--api", gateway.api]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("colo: the gateway's answer is of another version: Object missing required field")
    assert printed.err.count("\n") == 1
