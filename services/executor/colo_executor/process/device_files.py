"""Which device files a batch replica may open, in the words of cgroup v1's devices controller."""

import glob
import os
import stat
from collections.abc import Collection, Sequence
from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_executor.knobs import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.settings import ProcessPolicy

__all__ = ["EVERYBODYS", "check_patterns", "device_knobs", "device_rules"]

#: What every program may expect: null, zero, full, random, urandom, tty, ptmx and the terminals of pts. Files of devices may be
#: made (m) and are opened by these rules as well; container runtimes give the same.
EVERYBODYS: Final = (
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
)
#: The files by which programs reach devices of a kind, below /dev. A driver numbers them in its own order, so that a share opens
#: those of its kind.
_OF_KIND: Final[dict[str, tuple[str, ...]]] = {
    "gpu": ("nvidia*", "nvidia-caps/*", "dri/*", "kfd"),
    "npu": ("davinci*", "devmm_svm", "hisi_hdc"),
    "mlu": ("cambricon*",),
    "fpga": ("xclmgmt*", "dri/renderD*", "dfl-*"),
    "ib": ("infiniband/*",),
    "nic": (),
}
_PATTERNS_MOST: Final = 64


def check_patterns(patterns: Sequence[str], field: str) -> None:
    """Raise InvalidInput for the first pattern that does not stay below /dev."""
    if len(patterns) > _PATTERNS_MOST:
        raise InvalidInput(field, f"must be at most {_PATTERNS_MOST} patterns", len(patterns))
    for number, pattern in enumerate(patterns):
        parts = pattern.split("/")
        if not all(parts) or ".." in parts or "\0" in pattern:
            rule = 'must be a file below /dev such as "fuse" or "net/tun", with * and ? for what varies'
            raise InvalidInput(f"{field}[{number}]", rule, pattern)


def device_knobs(
    policy: ProcessPolicy, has: Collection[Knob], placement: Placement, path: str
) -> tuple[KnobWrite, ...]:
    """The knob of a batch replica's rules of devices, none where the kernel or the policy has none, or no fence may be."""
    if Knob.DEVICES not in has or policy.devices == "all":
        return ()
    rules = device_rules(placement, policy.device_files)
    return () if rules is None else (KnobWrite(path=path, knob=Knob.DEVICES, value="\n".join(rules)),)


def device_rules(placement: Placement, patterns: Sequence[str], dev_root: str = "/dev") -> tuple[str, ...] | None:
    """The rules of a replica, each once: everybody's, the operator's `patterns`, and the files of the kinds that it was given.

    None: it was given a kind whose files nobody knows, so that a fence would keep it from its own device.
    """
    kinds = {share.kind for share in placement.devices}
    if not kinds <= _OF_KIND.keys():
        return None
    wanted = [*patterns, *(pattern for kind in sorted(kinds) for pattern in _OF_KIND[kind])]
    found = {rule for pattern in wanted for rule in _rules_of(dev_root, pattern)}
    return (*EVERYBODYS, *sorted(found - set(EVERYBODYS)))


def _rules_of(dev_root: str, pattern: str) -> list[str]:
    rules = []
    for path in glob.glob(pattern, root_dir=dev_root):
        try:
            found = os.stat(os.path.join(dev_root, path))
        except OSError:
            continue
        kind = "c" if stat.S_ISCHR(found.st_mode) else "b" if stat.S_ISBLK(found.st_mode) else ""
        if kind:
            rules.append(f"{kind} {os.major(found.st_rdev)}:{os.minor(found.st_rdev)} rwm")
    return rules
