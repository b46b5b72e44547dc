"""Keeps the idempotency key of a submission of which nobody knows whether it was accepted, so that the same command repeats it.

One small file for each such submission lies in `$XDG_STATE_HOME/colo/submissions` (`~/.local/state` when that is unset). Its name
follows from the gateway's address and the job, so only a repetition finds it; it is forgotten after a day.
"""

import hashlib
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["keep_key", "take_key"]

_KEPT_FOR_S: Final = 24 * 3600
_FILES_MOST: Final = 100


def take_key(api: str, job: bytes) -> str:
    """The kept key of this job at this gateway, "" without one. It is taken: of two commands at once only one repeats."""
    path = _path(api, job)
    try:
        is_fresh = time.time() - path.stat().st_mtime < _KEPT_FOR_S
        key = path.read_text("ascii").strip()
        path.unlink()
    except (OSError, UnicodeDecodeError):
        return ""
    return key if is_fresh else ""


def keep_key(api: str, job: bytes, key: str) -> bool:
    """Keep the key for the next command; whether that was possible."""
    path = _path(api, job)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in others[: max(len(others) - _FILES_MOST + 1, 0)]:
            old.unlink(missing_ok=True)
        # A command that is killed in the middle leaves the whole key or none: half of one would submit the job twice.
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(key + "\n", "ascii")
        os.replace(fresh, path)
    except OSError:
        return False
    return True


def _path(api: str, job: bytes) -> Path:
    # A service account may have no home; the key is then printed and not kept.
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "colo" / "submissions" / hashlib.sha256(api.encode() + b"\0" + job).hexdigest()[:32]
