"""The `colo` command. A subcommand is imported when it is called, so that every call starts fast."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from colo_cli.everywhere import take_everywhere
from colo_cli.failure import Failure
from colo_cli.service import SERVICES, run_service, services_text

__all__ = ["app", "main"]

app = App(
    name="colo",
    help="Batch work on the idle capacity under latency-sensitive services, explained.",
    version_flags=(),
    result_action="return_value",
    # `main` handles Ctrl-C: a command that ended on request succeeded.
    suppress_keyboard_interrupt=False,
)
get = App(name="get", help="List jobs, nodes, queues, tenants, services and more; show one job or node.")
explain = App(name="explain", help="Explain where a job's replicas are, or what a node may promise.")
app.command(get)
app.command(explain)
dead_letters = App(name="dead-letters", help="Messages that a service could not handle: list, show, replay, drop.")
app.command(dead_letters)
for _verb, _function, _help in (
    ("list", "list_", "Messages that a service could not handle, oldest first."),
    ("show", "show", "Why, and the whole message."),
    ("replay", "replay", "Publish messages again."),
    ("drop", "drop", "Remove dead letters for good."),
):
    dead_letters.command(f"colo_cli.dead_letters:{_function}", name=_verb, help=_help)
admin = App(name="admin", help="What the administrator of an installation does: streams, tokens and credentials.")
app.command(admin)
tokens = App(name="tokens", help="Bearer tokens of the gateway: add, list, revoke.")
admin.command(tokens)
for _verb, _function, _help in (
    ("add", "add", "Make a token and print it, once."),
    ("list", "list_", "The tokens: whose, for what, until when."),
    ("revoke", "revoke", "Take tokens no longer."),
):
    tokens.command(f"colo_cli.admin_tokens:{_function}", name=_verb, help=_help)
for _verb, _help in (
    ("init", "Create the streams that are missing; run before the services start."),
    ("upgrade", "Bring the streams to this version's limits."),
    ("check", "Show the streams, and how they differ from what is wanted."),
):
    admin.command(f"colo_cli.admin:{_verb}", name=_verb, help=_help)
credentials = App(name="credentials", help="Users of NATS and Redis: who may say and hear what.")
admin.command(credentials)
for _verb, _function, _help in (
    ("init", "init", "Make a user for each role, and the files that the servers read."),
    ("add-node", "add_node", "Make the users of nodes."),
    ("rotate", "rotate", "Give users new keys; the old ones hold until --finish."),
    ("revoke", "revoke", "Let users or nodes in no longer."),
    ("list", "list_", "The users."),
    ("permissions", "permissions", "What each role may publish and subscribe to."),
):
    credentials.command(f"colo_cli.admin_credentials:{_function}", name=_verb, help=_help)
_COMMANDS = (
    ("status", "One screen about everything: whether all is well, what is wrong and what to do."),
    ("lab", "Run everything on this machine: real servers, all services, simulated nodes, a real trace."),
    ("doctor", "Show what this machine can do, what is missing, and what it means; --cluster: NATS and Redis."),
    ("submit", "Submit the job that a file describes."),
    ("plan", "Show where the job that a file describes would go, or why not; nothing changes."),
    ("fits", "How many replicas of a shape would find a place now, and where."),
    ("cancel", "Stop a job for good."),
    ("reserve", "Hold a place for owners who come later."),
    ("cordon", "Give a node no new work; what runs there stays."),
    ("drain", "Cordon a node and let what runs there leave in order; --dry-run shows it first."),
    ("pause", "Pause batch work of a node, a job or a queue; `resume` ends it."),
    ("quiesce", "Stop all batch work everywhere within a second; `unquiesce` ends it."),
    ("watch", "One line for each fact, as it happens."),
    ("history", "What happened: everywhere, on a node, or to a job."),
    ("trace", "The spans of a placement as a tree, without a tracing back end."),
    ("version", "Print the version; with --check, those that run in the cluster."),
    ("completion", "Completion for bash, zsh or fish."),
)
for _name, _help in _COMMANDS:
    app.command(f"colo_cli.{_name}:{_name}", name=_name, help=_help)
for _name, _help in (
    ("jobs", "Jobs, newest first."),
    ("job", "One job and its replicas."),
):
    get.command(f"colo_cli.get:{_name}", name=_name, help=_help)
for _place, _help in (
    ("colo_cli.nodes:nodes", "Nodes with use, promises, what is held and free, and why there is no more."),
    ("colo_cli.nodes:node", "One node: zones, promises, replicas, last changes; every control group with --cpus."),
    ("colo_cli.queues:queues", "Queues with what waits, runs and is held, as a share of the fleet."),
    ("colo_cli.queues:tenants", "Tenants with what waits, runs and is held, as a share of the fleet."),
    ("colo_cli.services:services", "Control services: since when, how far behind, ready or why not."),
):
    get.command(_place, name=_place.partition(":")[2], help=_help)
get.command("colo_cli.reserve:reservations", name="reservations", help="Places that are held for owners.")
for _name, _help in (
    ("job", "Why each replica is where it is."),
    ("overcommit", "The formula behind a node's number."),
):
    explain.command(f"colo_cli.explain:{_name}", name=_name, help=_help)
explain.command(
    "colo_cli.evictions:eviction", name="eviction", help="Why a replica had to leave, and why no other one."
)
get.command("colo_cli.harm:harm", name="harm", help="What online services felt in the last ten minutes.")
get.command("colo_cli.audit:audit", name="audit", help="Who changed something, or was not let in; newest first.")
get.command("colo_cli.evictions:evictions", name="evictions", help="Evictions, newest first.")
get.command("colo_cli.restrictions:restrictions", name="restrictions", help="What operators forbid, who and why.")
app.command("colo_cli.pause:resume", name="resume", help="End a pause: suspended replicas run on.")
app.command("colo_cli.quiesce:unquiesce", name="unquiesce", help="End a quiesce: batch work runs on.")
app.command("colo_cli.cordon:uncordon", name="uncordon", help="Let a node take new work again.")
explain.command(
    "colo_cli.reserve:reservation", name="reservation", help="What a reservation holds, or what it waits for."
)
app.command(
    "colo_cli.reserve:unreserve", name="unreserve", help="Forget a reservation; its owners keep what they hold."
)
app.command("colo_cli.help:show_help", name="help", help="Words, exit codes, or the help of a command.")
app.command("colo_cli.completion:complete_names", name="complete-names", show=False)

# What `pip install colo` leaves out: the command line alone asks a gateway and needs none of it.
_OF_SERVICES = frozenset({"aiohttp", "nats", "numpy", "opentelemetry", "prometheus_client", "redis", "structlog"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 when it is done, 1 when it is refused or finds nothing, 2 for a wrong call or input."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if words and words[0] in SERVICES:
            return run_service(words)
        words = take_everywhere(words)
        result = app(words, exit_on_error=False, print_error=False)
        if not {"--help", "-h"}.isdisjoint(words) or not words:
            from colo_cli.examples import example_of

            if words in ([], ["--help"], ["-h"]):
                sys.stdout.write(services_text())
            sys.stdout.write(f"Example: {example_of(words)}\n")
        # What is still buffered meets a reader that has gone (`colo watch | head`) here, and not at the interpreter's end.
        sys.stdout.flush()
    except CycloptsError as error:
        sys.stderr.write(f"colo: {error}\n")
        return 2
    except Failure as error:
        sys.stderr.write(f"colo: {error}\n")
        return error.status
    except ModuleNotFoundError as error:
        needed = (error.name or "").partition(".")[0]
        if needed not in _OF_SERVICES:
            raise
        sys.stderr.write(f"colo: this command needs {needed}: pip install 'colo[{_extra(words)}]'\n")
        return 1
    except BrokenPipeError:
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return 0
    return result if isinstance(result, int) else 0


def _extra(words: Sequence[str]) -> str:
    return "lab" if words[:1] == ["lab"] else "services"


def _discard_output() -> None:
    """Let nobody read what is still buffered, so that the interpreter's last flush finds no broken pipe."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
