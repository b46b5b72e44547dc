"""Measures what colo claims: python -m tests.evidence NAME [ARGUMENTS]

NAME: placement or overcommit. `python -m tests.evidence NAME --help` tells its arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from tests.evidence import overcommit, placement

EVIDENCE: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "placement": placement.main,
    "overcommit": overcommit.main,
}


def main(words: Sequence[str]) -> int:
    """Run the named measurement; 2 when there is none of that name."""
    if not words or words[0] not in EVIDENCE:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    return EVIDENCE[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
