"""Whether the lab changed since its own tests passed: `python -m tests.kernel.lab.changed` ends with 0 when they have to run.

They run unless it is certain that they need not: they passed on this machine with the same files, which a stamp in the lab's cache
says, or a branch changes none of these files beside the branch it left. `--passed` writes the stamp.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from colo_cli import server_process
from tests.kernel.lab.cache import cache_dir
from tests.kernel.lab.packages import say

__all__ = ["content_key", "has_changed", "main"]

ROOT: Final = Path(__file__).parents[3]
_TIES: Final = Path(server_process.__file__).relative_to(ROOT).as_posix()
#: What the lab's own tests judge: the lab, these tests, and what ties the machine to its parent.
WATCHED: Final = ("tests/kernel/lab", "tests/system/test_kernel_lab.py", _TIES)
#: The branch that a change is compared with; COLO_CI_BASE names another.
_BASES: Final = ("origin/HEAD", "origin/main", "main")
_STAMP: Final = "own-tests-passed"


def content_key(root: Path = ROOT, watched: Sequence[str] = WATCHED) -> str:
    """A digest of the watched files, names and contents, and of the Python that runs them."""
    digest = hashlib.sha256(sys.version.encode())
    for name in watched:
        top = root / name
        paths = sorted(path for path in top.rglob("*") if "__pycache__" not in path.parts) if top.is_dir() else [top]
        for path in paths:
            if path.is_file():
                digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def has_changed(root: Path = ROOT, watched: Sequence[str] = WATCHED, *, stamp: str = "", base: str = "") -> bool:
    """Whether the lab's own tests have to run: `stamp` is the key with which they passed last, `base` a branch to compare with."""
    if stamp and stamp == content_key(root, watched):
        return False
    for name in [base] if base else _BASES:
        fork = _git(root, "merge-base", "HEAD", name)
        # On the base itself nothing tells which of its changes were tested.
        if fork and fork != _git(root, "rev-parse", "HEAD"):
            changed = _git(root, "diff", "--name-only", fork, "--", *watched)
            unknown = _git(root, "ls-files", "--others", "--exclude-standard", "--", *watched)
            return changed is None or unknown is None or bool(changed or unknown)
    return True


def _git(root: Path, *words: str) -> str | None:
    """What git says, None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main(arguments: Sequence[str]) -> int:
    stamp = cache_dir() / _STAMP
    if list(arguments) == ["--passed"]:
        stamp.write_text(content_key())
        return 0
    if arguments:
        sys.stderr.write(__doc__ or "")
        return 2
    passed = stamp.read_text() if stamp.is_file() else ""
    if has_changed(stamp=passed, base=os.environ.get("COLO_CI_BASE", "")):
        say("the lab's own tests have to run: it changed, or nothing tells that it did not")
        return 0
    say("the lab is as it was when its own tests passed")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
