"""Is the service of this container ready? Exit code 0 when /readyz says so. Sockets alone: it starts in a few milliseconds."""

import os
import socket
import sys


def main() -> int:
    """Ask /readyz on this machine at COLO_HTTP_PORT, and say why not on stdout."""
    port = int(os.environ.get("COLO_HTTP_PORT", "9100"))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"GET /readyz?verbose HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
    except OSError as error:
        sys.stdout.write(f"port {port}: {error}\n")
        return 1
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " in head.partition(b"\r\n")[0] + b" ":
        return 0
    sys.stdout.write(body.decode("utf-8", "replace"))
    return 1


if __name__ == "__main__":
    sys.exit(main())
