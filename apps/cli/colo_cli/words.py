"""What the words on screen mean, for people who read them: `colo help words`."""

from typing import Final, NamedTuple

from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.reasons import SENTENCES
from colo_common.model.transitions import StateMachine

__all__ = ["Word", "words_by_topic"]


class Word(NamedTuple):
    """A word and its meaning in one sentence."""

    word: str
    means: str


_NUMBERS: Final = (
    Word("capacity", "what the machine has"),
    Word("used", "what is measured now"),
    Word("requested", "what a job file asks for; a replica gets at least this or does not start"),
    Word("allocatable", "what batch work may be promised on a node now, from the newest usage sample"),
    Word("promised", "the same as allocatable: the executor guarantees it for the time of a lease"),
    Word("held", "the part of the promise that placed replicas have"),
    Word("free", "promised and not held: what the next replica can take"),
    Word(
        "headroom",
        "what would be left above what is held if the promise were computed now; below 0 batch work must shrink",
    ),
    Word("ceiling", "the CPU that all batch work of a node may use at this moment; the reflex moves it within 100 ms"),
    Word("floor", "the least to which the ceiling falls when a node hears nothing from the control plane"),
    Word(
        "lease",
        "how long a promise counts without being renewed; after it batch work steps down to the floor by itself",
    ),
    Word("mcpu", "milli-CPU: 1000 is one logical CPU"),
    Word("share", "what a queue or tenant holds of all that the fleet has"),
)
_CLASSES: Final = (
    Word("SYSTEM", "daemons of the node itself"),
    Word("LSE", "latency-sensitive, exclusive: its CPUs are in nobody else's set"),
    Word("LSR", "latency-sensitive, reserved: its CPUs may be shared with BE only"),
    Word("LS", "latency-sensitive: runs on the CPUs that no LSE or LSR work holds"),
    Word("BE", "best effort, the batch work: runs on what the others leave idle, on all CPUs but those of LSE"),
    Word("prod", "the most important band; a higher band goes first and may take the place of a lower one"),
    Word("mid", "the band below prod"),
    Word("batch", "the band of ordinary batch work, what BE gets when a file names none"),
    Word("free", "the least important band"),
)
_FRESHNESS: Final = (
    Word("unknown", "no usage sample of the node has come yet"),
    Word("warming", "the first samples have come; nothing is promised before the next"),
    Word("fresh", "samples come in time: batch work may grow"),
    Word("stale", "a sample is late: batch work may shrink and never grows, and nothing is evicted"),
    Word("lost", "no sample for so long that the node's replicas are queued again"),
)
_DEEDS: Final = (
    Word("suppressed", "batch CPU was shrunk at once because online work needs it"),
    Word("throttled", "the kernel stopped batch work for the rest of a period because its quota was used"),
    Word("evicted", "a replica had to leave because its node was under pressure; it is queued again and uses no retry"),
    Word("preempted", "a replica had to leave because more important work needs its place"),
    Word("cordoned", "the node gets no new work; what runs there stays"),
    Word("drained", "batch work leaves the node and none comes"),
    Word("paused", "batch work of a node, job or queue gets no CPU until it is resumed"),
    Word("quiesced", "all batch work everywhere is stopped until an operator ends it"),
    Word("colocation", "online services and batch work on one machine"),
    Word("harm", "online work that got less CPU, or got it later, than without batch work"),
)
# Names of the state machine that some systems compared with colo have; no job of colo is ever in these states.
_ELSEWHERE: Final = (
    Word("Privileged", "Octopus: a waiting job that was granted the place of a victim, which is still being stopped"),
    Word(
        "WillEvicted",
        "Octopus: a running job that was chosen as a victim and still runs until its timer ends; colo: evicted",
    ),
)
_PLAIN: Final = {
    "Inqueue": "its queue has admitted it: its replicas wait for a place",
    "Completed": "over: it succeeded",
    "Failed": "over: it failed",
    "Terminated": "over: it was cancelled",
}


def words_by_topic() -> dict[str, tuple[Word, ...]]:
    """All words with their topics, in the order in which they are shown. States and reasons come from their own tables."""
    return {
        "States of a job": tuple(_states(JOB)),
        "States of a replica": tuple(_states(REPLICA)),
        "Why a replica waits or left": tuple(Word(reason.value, text) for reason, text in SENTENCES.items()),
        "Freshness of a node": _FRESHNESS,
        "Numbers": _NUMBERS,
        "Classes and bands": _CLASSES,
        "What happens to batch work": _DEEDS,
        "States of other systems": _ELSEWHERE,
    }


def _states(machine: StateMachine) -> list[Word]:
    return [
        Word(state.name, _PLAIN.get(state.name, state.meaning) if machine is JOB else state.meaning)
        for state in machine.states
    ]
