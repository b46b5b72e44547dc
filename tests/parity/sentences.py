"""Rules that a table asks for in words. Each is answered by the model where it covers the rule, else by the manual.

A sentence is recognised by the words in it, the first entry whose words all occur counts; a sentence that none
recognises is unknown, and is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from colo_common.model.cpuset import CpuSet
from tests.parity.peers.cgroup_model import write_v2_core
from tests.parity.peers.cpuset_model import CpusetV1Tree
from tests.parity.table import UnknownSentence

Answer = str | None
Rule = tuple[tuple[str, ...], Callable[[], Answer]]


def errno_for(sentence: str, rules: Sequence[Rule]) -> Answer:
    """Return the errno (None for success) of the first rule whose patterns all occur in the sentence."""
    lowered = sentence.lower()
    for patterns, answer in rules:
        if all(re.search(pattern, lowered) for pattern in patterns):
            return answer()
    raise UnknownSentence(sentence)


def _last(*steps: tuple[str, ...]) -> Callable[[], Answer]:
    """Return the errno of the last of these steps on a machine with CPUs 0-7 and nodes 0-1; the others succeed."""

    def run() -> Answer:
        tree = CpusetV1Tree(CpuSet.parse("0-7"), CpuSet.parse("0-1"))
        answers = [step(tree, words) for words in steps]
        if any(answers[:-1]):
            raise AssertionError(f"a step of the set-up was refused: {answers}")
        return answers[-1]

    return run


def step(tree: CpusetV1Tree, words: Sequence[str]) -> Answer:
    """Do one step of a sequence: mkdir PATH, rmdir PATH, attach PATH, or write PATH KNOB TEXT."""
    match list(words):
        case ["mkdir", path]:
            return tree.mkdir(path)
        case ["rmdir", path]:
            return tree.rmdir(path)
        case ["attach", path, *_]:
            return tree.attach(path)
        case ["write", path, knob, text]:
            return tree.write(path, knob, text)
        case _:
            raise UnknownSentence(" ".join(words))


_A = (("mkdir", "a"), ("write", "a", "cpus", "0-3"), ("write", "a", "mems", "0"))
_A_B = (*_A, ("mkdir", "a/b"), ("write", "a/b", "cpus", "0-1"), ("write", "a/b", "mems", "0"))
_A_TASK = (*_A, ("attach", "a"))
_EXCLUSIVE_A = (*_A, ("write", "a", "cpu_exclusive", "1"))

CPUSET_V1_RULES: tuple[Rule, ...] = (
    (("sibling",), _last(*_EXCLUSIVE_A, ("mkdir", "c"), ("write", "c", "cpus", "3-4"))),
    (
        ("exclusive", r"parent.*(not|isn't|without)|non-exclusive parent"),
        _last(*_A_B, ("write", "a/b", "cpu_exclusive", "1")),
    ),
    (("shrink", "parent|below"), _last(*_A_B, ("write", "a", "cpus", "0"))),
    ((r"parent.*below.*child",), _last(*_A_B, ("write", "a", "cpus", "0"))),
    ((r"(attach|task|move).*(empty|no|without|unset).*mems|mems.*empty.*attach",), _last(*_A[:2], ("attach", "a"))),
    ((r"(empty|clear)\w*.*mems.*with.*task",), _last(*_A_TASK, ("write", "a", "mems", ""))),
    ((r"(empty|clear)\w*.*cpus.*with.*task",), _last(*_A_TASK, ("write", "a", "cpus", ""))),
    (("attach", "empty|no cpus|without|unset|new"), _last(("mkdir", "a"), ("attach", "a"))),
    (
        (r"(subset|superset|outside|beyond|wider|exceed\w*|grow|widen)", "child|parent"),
        _last(*_A_B, ("write", "a/b", "cpus", "0-4")),
    ),
    (
        (r"mems?|node", "absent|does not exist|not exist|missing|offline|unknown|without"),
        _last(("mkdir", "a"), ("write", "a", "mems", "7")),
    ),
    ((r"cpu.*(above|>=|beyond|too large|nr_cpu_ids)",), _last(("mkdir", "a"), ("write", "a", "cpus", "8"))),
    (("root", "write|cpus|mems|change"), _last(("write", "", "cpus", "0-1"))),
    (("rmdir", "child"), _last(*_A_B, ("rmdir", "a"))),
    (("rmdir", "task|process"), _last(*_A_TASK, ("rmdir", "a"))),
)


def _always(errno: Answer) -> Callable[[], Answer]:
    return lambda: errno


V2_CORE_RULES: tuple[Rule, ...] = (
    (
        ("subtree_control", r"not in cgroup\.controllers|unavailable|absent"),
        lambda: write_v2_core("cgroup.subtree_control", "+cpu"),
    ),
    (("subtree_control|enabl", "process|task|internal|populated"), _always("EBUSY")),
    (("subtree_control", "unknown|no sign|without"), lambda: write_v2_core("cgroup.subtree_control", "+nosuch")),
    (("mkdir|name|creat", "newline"), _always("EINVAL")),
    (("domain invalid", "attach|procs|move|write"), _always("EOPNOTSUPP")),
    (("read", "procs", "threaded"), _always("EOPNOTSUPP")),
    (("type", "threaded", "write|writing"), lambda: write_v2_core("cgroup.type", "threaded")),
    (("type", "domain", "write|writing"), lambda: write_v2_core("cgroup.type", "domain")),
    (("mkdir|creat|exceed|above|beyond", r"depth|descendants"), _always("EAGAIN")),
    (("rmdir|remov", "child|process|task|populated"), _always("EBUSY")),
)
