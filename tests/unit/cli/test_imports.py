"""A command imports what it shows and no service: that is what keeps an answer within half a second."""

import json
import shlex
import subprocess
import sys
from typing import Final

from colo_cli.examples import EXAMPLES

#: Where a question's time would go: loops, servers' clients, tables, numbers; and the code of the services beside their answers.
NOT_IMPORTED: Final = (
    "aiohttp", "asyncio", "logging", "multiprocessing", "nats", "numpy", "opentelemetry", "pandas", "prometheus_client",
    "redis", "rich", "structlog", "unittest", "yaml",
    "colo_collector", "colo_evictor", "colo_executor", "colo_gateway.api", "colo_gateway.core", "colo_gateway.shell",
    "colo_gateway.state", "colo_jobs", "colo_overcommit", "colo_scheduler", "colo_sim", "colo_common.adapters",
    "colo_common.runtime",
)  # fmt: skip
#: Read and change without a file; a file is YAML, which is imported for it.
ASKING: Final = (
    "cancel",
    "cordon",
    "drain",
    "explain",
    "fits",
    "get",
    "history",
    "pause",
    "quiesce",
    "status",
    "trace",
    "watch",
)
CODE: Final = """
import contextlib, io, json, sys
from colo_cli.client import Client
from colo_cli.main import main
Client._call_once = lambda *_: {}
Client.events = lambda *_, **__: iter(())
commands, unwanted = json.loads(sys.argv[1])
for words in commands:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(words)
    for name in unwanted:
        if name in sys.modules:
            sys.exit(f"{words} imports {name}")
"""


def _imported(unwanted: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    commands = [shlex.split(line)[1:] for name, line in sorted(EXAMPLES.items()) if name.split(" ")[0] in ASKING]
    assert len(commands) > 25
    words = [sys.executable, "-c", CODE, json.dumps([commands, unwanted])]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_no_question_imports_a_service_or_what_only_services_need() -> None:
    done = _imported(NOT_IMPORTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert _imported(("colo_gateway.state_replies",)).stderr.endswith("imports colo_gateway.state_replies\n")
