"""Are services ready? Exit code 0 when /readyz of each says so; else 1, and why. Sockets alone: it starts in a few milliseconds.

Without words it asks this container's own service at COLO_HTTP_PORT; else each word is HOST:PORT, or tls:HOST:PORT, whose
certificate is not looked at. `--within=SECONDS` before them: one that is not ready is asked again until then.
"""

import os
import socket
import sys
import time

_WITHIN = "--within="
_AGAIN_S = 0.5


def connected(host: str, port: int, is_tls: bool) -> socket.socket:
    """A connection to a service."""
    plain = socket.create_connection((host, port), timeout=5)
    if not is_tls:
        return plain
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=host)


def problem_of(host: str, port: int, is_tls: bool = False) -> str:
    """Empty, or why the service there is not ready."""
    try:
        with connected(host, port, is_tls) as connection:
            connection.sendall(f"GET /readyz?verbose HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
    except OSError as error:
        return str(error)
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] == [b"200"]:
        return ""
    return body.decode("utf-8", "replace") or "it says nothing"


def main(words: list[str]) -> int:
    """Ask, and print who is not ready."""
    until_s = time.monotonic()
    if words and words[0].startswith(_WITHIN):
        until_s += float(words[0].removeprefix(_WITHIN))
        words = words[1:]
    status = 0
    for word in words or [f"127.0.0.1:{os.environ.get('COLO_HTTP_PORT', '9100')}"]:
        host, _, port = word.removeprefix("tls:").rpartition(":")
        is_tls = word.startswith("tls:")
        while (problem := problem_of(host, int(port), is_tls)) and time.monotonic() + _AGAIN_S < until_s:
            time.sleep(_AGAIN_S)
        if problem:
            status = 1
            sys.stdout.write(f"{host}:{port}: {problem}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
