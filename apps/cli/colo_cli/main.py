"""The `colo` command. A subcommand is imported when it is called, so that every call starts fast."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError
from msgspec import ValidationError

from colo_cli.everywhere import take_everywhere
from colo_cli.failure import Failure
from colo_cli.service import SERVICES, run_service, services_text
from colo_common.model.invalid import InvalidInput
from colo_common.model.printable import printable

__all__ = ["app", "main"]

app = App(
    name="colo",
    help="Batch work on the idle capacity under latency-sensitive services, explained.",
    version_flags=(),
    result_action="return_value",
    # `main` handles Ctrl-C: a command that ended on request succeeded.
    suppress_keyboard_interrupt=False,
)


def _group(parent: App, name: str, sentence: str) -> App:
    """A command that has verbs of its own."""
    group = App(name=name, help=sentence)
    parent.command(group)
    return group


def _verbs(group: App, *verbs: tuple[str, str], module: str = "") -> None:
    """Add verbs, each with its sentence of help: a function of its name in `module`, or in the module that it names itself.

    A verb is `name` or `module:name`; without a module the verb's own name is that of its module. `list` is the function `list_`,
    `set` is `set_`.
    """
    for place, sentence in verbs:
        of_its_own, _, name = place.rpartition(":")
        function = f"{name}_" if name in ("list", "set") else name.replace("-", "_")
        group.command(f"colo_cli.{of_its_own or module or function}:{function}", name=name, help=sentence)


get = _group(app, "get", "List jobs, nodes, queues, tenants, services and more; show one job or node.")
explain = _group(app, "explain", "Explain where a job's replicas are, or what a node may promise.")
node = _group(
    app, "node", "A machine by itself, without a control plane: what it is, what it can do, what it does now."
)
policy = _group(app, "policy", "How much batch work is promised where: show, check, diff, apply, rollback.")
external = _group(app, "external", "What a system outside gives batch work on a node, for a time: set, clear.")
dead_letters = _group(app, "dead-letters", "Messages that a service could not handle: list, show, replay, drop.")
admin = _group(app, "admin", "What the administrator of an installation does: streams, tokens and credentials.")
tokens = _group(admin, "tokens", "Bearer tokens of the gateway: add, list, revoke.")
credentials = _group(admin, "credentials", "Users of NATS and Redis: who may say and hear what.")
_verbs(
    app,
    ("status", "One screen about everything: whether all is well, what is wrong and what to do."),
    ("lab", "Run everything on this machine: real servers, all services, simulated nodes, a real trace."),
    ("doctor", "Show what this machine can do, what is missing, and what it means; --cluster: NATS and Redis."),
    ("submit", "Submit the job that a file describes."),
    ("plan", "Show where the job that a file describes would go, or why not; nothing changes."),
    ("fits", "How many replicas of a shape would find a place now, and where."),
    ("cancel", "Stop a job for good."),
    ("reserve", "Hold a place for owners who come later."),
    ("reserve:unreserve", "Forget a reservation; its owners keep what they hold."),
    ("cordon", "Give a node no new work; what runs there stays."),
    ("cordon:uncordon", "Let a node take new work again."),
    ("drain", "Cordon a node and let what runs there leave in order; --dry-run shows it first."),
    ("pause", "Pause batch work of a node, a job or a queue; `resume` ends it."),
    ("pause:resume", "End a pause: suspended replicas run on."),
    ("quiesce", "Stop all batch work everywhere within a second; `unquiesce` ends it."),
    ("quiesce:unquiesce", "End a quiesce: batch work runs on."),
    ("watch", "One line for each fact, as it happens."),
    ("history", "What happened: everywhere, on a node, or to a job."),
    ("trace", "The spans of a placement as a tree, without a tracing back end."),
    ("version", "Print the version; with --check, those that run in the cluster."),
    ("completion", "Completion for bash, zsh or fish."),
)
app.command("colo_cli.help:show_help", name="help", help="Words, exit codes, or the help of a command.")
app.command("colo_cli.completion:complete_names", name="complete-names", show=False)
_verbs(
    get,
    ("get:jobs", "Jobs, newest first."),
    ("get:job", "One job and its replicas."),
    ("nodes:nodes", "Nodes with use, promises, what is held and free, and why there is no more."),
    ("nodes:node", "One node: zones, promises, replicas, last changes; every control group with --cpus."),
    ("queues:queues", "Queues with what waits, runs and is held, as a share of the fleet."),
    ("queues:tenants", "Tenants with what waits, runs and is held, as a share of the fleet."),
    ("services:services", "Control services: since when, how far behind, ready or why not."),
    ("reserve:reservations", "Places that are held for owners."),
    ("harm:harm", "What online services felt in the last ten minutes."),
    ("audit:audit", "Who changed something, or was not let in; newest first."),
    ("evictions:evictions", "Evictions, newest first."),
    ("restrictions:restrictions", "What operators forbid, who and why."),
)
_verbs(
    explain,
    ("explain:job", "Why each replica is where it is."),
    ("explain:overcommit", "The formula behind a node's number."),
    ("evictions:eviction", "Why a replica had to leave, and why no other one."),
    ("reserve:reservation", "What a reservation holds, or what it waits for."),
)
_verbs(
    node,
    ("node_restore:restore", "Take colo off this machine: end its replicas and put every kernel file back."),
    ("node_show:show", "Show a node; --local: this machine as the collector sees it, its topology and a live sample."),
)
_verbs(
    policy,
    ("show", "The policy in force: each key, who owns it, whether it is followed."),
    ("check", "Read a policy file and show what it would change, by a replay of the last minutes."),
    ("diff", "What a policy file would change in the policy in force."),
    ("apply", "Put a policy file in force, without a restart."),
    ("rollback", "Put an earlier policy in force again."),
    module="policy",
)
_verbs(
    external,
    ("set", "Promise batch work no more than this on a node, until the time is over."),
    ("clear", "End what a source said of a node."),
    module="external",
)
_verbs(
    dead_letters,
    ("list", "Messages that a service could not handle, oldest first."),
    ("show", "Why, and the whole message."),
    ("replay", "Publish messages again."),
    ("drop", "Remove dead letters for good."),
    module="dead_letters",
)
_verbs(
    admin,
    ("init", "Create the streams that are missing; run before the services start."),
    ("upgrade", "Bring the streams to this version's limits."),
    ("check", "Show the streams, and how they differ from what is wanted."),
    module="admin",
)
_verbs(
    tokens,
    ("add", "Make a token and print it, once."),
    ("list", "The tokens: whose, for what, until when."),
    ("revoke", "Take tokens no longer."),
    module="admin_tokens",
)
_verbs(
    credentials,
    ("init", "Make a user for each role, and the files that the servers read."),
    ("add-node", "Make the users of nodes."),
    ("add-role", "Make the users of roles that have none."),
    ("rotate", "Give users new keys; the old ones hold until --finish."),
    ("revoke", "Let users or nodes in no longer."),
    ("list", "The users."),
    ("permissions", "What each role may publish and subscribe to."),
    ("kubernetes", "The same users as Secrets of Kubernetes, for the chart."),
    module="admin_credentials",
)

# A sentence may go on in a second line.
_LINES = "\n\t"
# What `pip install colo` leaves out: the command line alone asks a gateway and needs none of it.
_OF_SERVICES = frozenset({"aiohttp", "nats", "numpy", "opentelemetry", "prometheus_client", "redis", "structlog"})


def _refusal(error: CycloptsError) -> str:
    """What is wrong with the words, in a sentence."""
    too_many = " ".join(error.unused_tokens or ()) if isinstance(error, UnusedCliTokensError) else ""
    return f"{too_many}: too much; the command takes no such words after the others" if too_many else str(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 when it is done, 1 when it is refused or finds nothing, 2 for a wrong call or input."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if words and words[0] in SERVICES:
            return run_service(words)
        words = take_everywhere(words)
        if words in (["--version"], ["-V"]):
            words = ["version"]
        result = app(words, exit_on_error=False, print_error=False)
        if not {"--help", "-h"}.isdisjoint(words) or not words:
            from colo_cli.examples import example_of

            if words in ([], ["--help"], ["-h"]):
                sys.stdout.write(services_text())
            sys.stdout.write(f"Example: {example_of(words)}\n")
        # What is still buffered meets a reader that has gone (`colo watch | head`) here, and not at the interpreter's end.
        sys.stdout.flush()
    except CycloptsError as error:
        from colo_cli.hints import hint_of

        sys.stderr.write(f"colo: {_refusal(error)}{hint_of(words)}\n")
        return 2
    except Failure as error:
        sys.stderr.write(f"colo: {printable(str(error), keeps=_LINES)}\n")
        return error.status
    except InvalidInput as error:
        from colo_cli.hints import hint_of

        sys.stderr.write(f"colo: {printable(str(error), keeps=_LINES)}{hint_of(words)}\n")
        return 2
    except ValidationError as error:
        # What a person wrote is checked where it is read; what is left here came from a gateway.
        sys.stderr.write(
            f"colo: the gateway's answer is of another version: {printable(str(error))}; see `colo version --check`\n"
        )
        return 1
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
