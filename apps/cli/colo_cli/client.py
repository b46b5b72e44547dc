"""The gateway's HTTP API as the command line uses it: blocking, one call at a time, standard library only (it starts fast)."""

import http.client
import json
import os
import socket
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import ValidationError

from colo_cli.failure import CommandRefused, Failure, NoReply
from colo_common.model.printable import printable

__all__ = ["DEFAULT_API", "Client", "own_token"]

DEFAULT_API: Final = "http://127.0.0.1:8088"
_TIMEOUT_S: Final = 10.0
_RETRY_FOR_S: Final = 10.0
_PAUSE_S: Final = 0.25
_UNAVAILABLE: Final = 503
# The most values of one answer, and of a list that is put together of several.
_PAGE_MOST: Final = 1_000
_LISTED_MOST: Final = 1_000_000


class Client:
    """Calls `api`, or COLO_API, or the address of a lab on this machine.

    The bearer token and the authority of the gateway's certificate are those of `--token` or COLO_TOKEN, and `--ca` or COLO_CA.

    A call that the gateway answers with 503 is repeated for at most `retry_for_s`, after one line on stderr. A DELETE is never
    repeated. `now_ms` and `clock_speed` are the cluster's clock at the newest reply; a speed above 1: times are simulated.
    """

    def __init__(self, api: str | None = None, *, retry_for_s: float = _RETRY_FOR_S) -> None:
        self.api = (api or os.environ.get("COLO_API") or DEFAULT_API).rstrip("/")
        if not self.api.startswith(("http://", "https://")):
            raise Failure(f"api: must begin with http:// or https:// (got {json.dumps(self.api)})", 2)
        try:
            is_address = bool(urllib.parse.urlsplit(self.api).hostname) and urllib.parse.urlsplit(self.api).port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise Failure(f"api: must be an address such as {DEFAULT_API} (got {json.dumps(self.api)})", 2)
        self._retry_for_s = retry_for_s
        self._headers = {"Authorization": f"Bearer {token}"} if (token := own_token()) else {}
        self._tls = _tls_of(os.environ.get("COLO_CA", "")) if self.api.startswith("https://") else None
        self.now_ms = 0
        self.clock_speed = 1.0

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        """The reply as plain values.

        Raises CommandRefused when the gateway refuses, with status 2 for an input (400, 413) and else 1, NoReply when the request
        was sent and no reply came, and Failure when no gateway is there.
        """
        until_s: float | None = None
        while True:
            try:
                return self._call_once(method, path, body, headers)
            except CommandRefused as refused:
                now_s = time.monotonic()
                if refused.code != _UNAVAILABLE or method == "DELETE" or (until_s is not None and now_s >= until_s):
                    raise
                if until_s is None:
                    print(
                        f"{printable(str(refused))}; waiting for it, {self._retry_for_s:g} s at most", file=sys.stderr
                    )
                    until_s = now_s + self._retry_for_s
            time.sleep(_PAUSE_S)

    def _call_once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        request = urllib.request.Request(
            self.api + path, data=body, method=method, headers={**headers, **self._headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as response:
                self.clock_speed = float(response.headers.get("Colo-Clock-Speed", "1"))
                self.now_ms = int(response.headers.get("Colo-Now-Ms", "0"))
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise _refused(error) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            if (unreachable := self._unreachable(error)) is not None:
                raise unreachable from error
            reason = getattr(error, "reason", error)
            raise NoReply(f"the gateway at {self.api} gave no whole reply ({reason})") from error

    def _unreachable(self, error: Exception) -> Failure | None:
        """The failure of a call that met no gateway, or none that it may trust; None when one was met."""
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            rule = "--ca FILE or COLO_CA names the authority that signed it"
            return Failure(f"{self.api}: its certificate is not trusted ({reason.verify_message}); {rule}")
        if isinstance(reason, (ConnectionRefusedError, socket.gaierror, ValueError)):
            why = getattr(reason, "strerror", None) or str(reason)
            return Failure(f"no gateway answers at {self.api} ({why}); is `colo lab` running, or is COLO_API set?")
        return None

    def get(self, path: str, **query: str | int | None) -> Any:
        """The reply to a GET. Query values that are None or empty are left out."""
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        return self.call("GET", path + ("?" + urllib.parse.urlencode(given) if given else ""))

    def pages(self, path: str, key: str, limit: int = _LISTED_MOST, **query: str | int | None) -> dict[str, Any]:
        """A list of the gateway's as one answer: follows `next` until `limit` values of `key` are there or the list ends."""
        found: Any = None
        values: list[Any] = []
        while found is None or (found.get("next") and len(values) < limit):
            most = min(_PAGE_MOST, limit - len(values))
            found = self.get(path, limit=most, cursor=None if found is None else found.get("next"), **query)
            if not isinstance(found, dict) or not isinstance(found.get(key), list):
                raise ValidationError(f"a list of {key} was expected - at `$.{key}`")
            if not found[key]:
                break
            values += found[key]
        return {**found, key: values}

    def events(self, **query: str | int | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Type and body of each event of the gateway's stream, until the stream ends or the caller stops.

        The first is `open` with the `clock_speed` of the times in the events: above 1 they are simulated.
        """
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        url = f"{self.api}/v1/stream?{urllib.parse.urlencode(given)}"
        try:
            request = urllib.request.Request(url, headers=self._headers)
            with urllib.request.urlopen(request, timeout=60, context=self._tls) as response:
                yield "open", {"clock_speed": float(response.headers.get("Colo-Clock-Speed", "1"))}
                name = ""
                for line in response:
                    text = line.decode().rstrip("\n")
                    if text.startswith("event: "):
                        name = text[7:]
                    elif text.startswith("data: ") and name:
                        yield name, json.loads(text[6:]) if text[6:7] == "{" else {"text": text[6:]}
                        name = ""
        except urllib.error.HTTPError as error:
            raise _refused(error) from error
        except BrokenPipeError:
            # The reader of our own output has gone; the stream is as it was.
            raise
        except OSError as error:
            raise self._unreachable(error) or Failure(f"the stream of {self.api} broke: {error}") from error


def own_token() -> str:
    """The token of COLO_TOKEN; "@FILE" reads it from a file, whose name other users of the machine may see. Raises Failure (2)."""
    given = os.environ.get("COLO_TOKEN", "").strip()
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"token: {given[1:]} cannot be read ({error})", 2) from error


def _tls_of(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority or None)
    except (OSError, ssl.SSLError) as error:
        raise Failure(f"ca: {authority} must be a readable PEM certificate ({error})", 2) from error


def _refused(error: urllib.error.HTTPError) -> CommandRefused:
    field = ""
    try:
        problem = json.loads(error.read())
        field = str(problem["field"])
        sentence = f"{problem['field']}: {problem['rule']}" + (f" (got {problem['got']})" if problem.get("got") else "")
    except (ValueError, KeyError, TypeError):
        sentence = f"the gateway answered {error.code} {error.reason}"
    return CommandRefused(sentence, 2 if error.code in (400, 413) else 1, error.code, field)
