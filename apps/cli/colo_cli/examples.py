"""One example for each command, shown at the end of its help."""

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["EXAMPLES", "example_of"]

EXAMPLES: Final[Mapping[str, str]] = {
    "": "colo lab",
    "admin check": "colo admin check --nats-url nats://10.0.0.1:4222",
    "admin credentials add-node": "colo admin credentials add-node node-1 node-2",
    "admin credentials add-role": "colo admin credentials add-role evictor",
    "admin credentials init": "colo admin credentials init --directory /etc/colo/credentials",
    "admin credentials kubernetes": "colo admin credentials kubernetes --namespace colo | kubectl apply -f -",
    "admin credentials list": "colo admin credentials list",
    "admin credentials permissions": "colo admin credentials permissions --node node-1",
    "admin credentials revoke": "colo admin credentials revoke node-1",
    "admin credentials rotate": "colo admin credentials rotate scheduler",
    "admin credentials": "colo admin credentials permissions",
    "admin init": "colo admin init --stream-replicas 3 --stream-disk-bytes 68719476736",
    "admin tokens": "colo admin tokens list",
    "admin": "colo admin tokens add alice --role submitter --tenant research",
    "admin tokens add": "colo admin tokens add alice --role submitter --tenant research --expires 90d",
    "admin tokens list": "colo admin tokens list --file /etc/colo/tokens.json",
    "admin tokens revoke": "colo admin tokens revoke alice",
    "admin upgrade": "colo admin upgrade",
    "cancel": "colo cancel render",
    "completion": "colo completion bash",
    "cordon": "colo cordon node-03 --reason 'new disk'",
    "dead-letters": "colo dead-letters list",
    "dead-letters drop": "colo dead-letters drop 7",
    "dead-letters list": "colo dead-letters list --service jobs",
    "dead-letters replay": "colo dead-letters replay 7 8",
    "dead-letters show": "colo dead-letters show 7",
    "doctor": "colo doctor",
    "drain": "colo drain node-03 --dry-run",
    "explain": "colo explain job render",
    "explain eviction": "colo explain eviction render-1a2b3c4d/frames/0",
    "explain job": "colo explain job render",
    "explain overcommit": "colo explain overcommit node-03",
    "explain reservation": "colo explain reservation night",
    "external": "colo external set node-03 --source yarn --cpu 4 --memory 8Gi --for 10m",
    "external clear": "colo external clear node-03 --source yarn",
    "external set": "colo external set node-03 --source yarn --cpu 4 --memory 8Gi --for 10m",
    "fits": "colo fits --cpu 2 --memory 4Gi",
    "get": "colo get nodes",
    "get audit": "colo get audit --refused",
    "get evictions": "colo get evictions",
    "get harm": "colo get harm",
    "get job": "colo get job render",
    "get jobs": "colo get jobs --state Running --queue default",
    "get node": "colo get node node-03 --cpus",
    "get nodes": "colo get nodes --sort free",
    "get queues": "colo get queues",
    "get reservations": "colo get reservations",
    "get restrictions": "colo get restrictions",
    "get services": "colo get services",
    "get tenants": "colo get tenants",
    "help": "colo help words headroom",
    "history": "colo history node node-03",
    "lab": "colo lab --nodes 12 --seed 1",
    "node": "colo node show --local",
    "node restore": "colo node restore --config /etc/colo/colo.yaml --yes",
    "node show": "colo node show --local -o nrt",
    "pause": "colo pause node-03 --reason 'odd latency'",
    "plan": "colo plan -f examples/job.yaml",
    "policy": "colo policy show",
    "policy apply": "colo policy apply -f examples/policy.yaml --reason 'more for the night'",
    "policy check": "colo policy check -f examples/policy.yaml",
    "policy diff": "colo policy diff -f examples/policy.yaml",
    "policy rollback": "colo policy rollback --reason 'too much was evicted'",
    "policy show": "colo policy show",
    "quiesce": "colo quiesce --reason 'incident'",
    "reserve": "colo reserve -f examples/reservation.yaml",
    "resume": "colo resume node-03",
    "status": "colo status",
    "submit": "colo submit -f examples/job.yaml",
    "trace": "colo trace render",
    "uncordon": "colo uncordon node-03",
    "unquiesce": "colo unquiesce",
    "unreserve": "colo unreserve night",
    "version": "colo version",
    "watch": "colo watch --since 1m",
}


def example_of(words: Sequence[str]) -> str:
    """The example of the command that the words begin with, "" without one."""
    names = [word for word in words if not word.startswith("-")]
    for size in range(min(len(names), 3), -1, -1):
        if (path := " ".join(names[:size])) in EXAMPLES:
            return EXAMPLES[path]
    return ""
