"""How many examples a property draws and how many seeds are lived: one profile for the run, and for each property a share of it.

`HYPOTHESIS_PROFILE` picks the profile. `dev`, the default, draws few examples, the same in every run, so that nobody waits for
luck; `ci` draws the same; `nightly` draws 4,000, others in every run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from hypothesis import HealthCheck, settings

from tests.support.servers import in_ci

__all__ = ["examples", "load_profile", "seeds"]

#: Examples of a property without a share of its own.
_EXAMPLES: Final = {"dev": 25, "ci": 25, "nightly": 4_000}
_VARIABLE: Final = "HYPOTHESIS_PROFILE"


def load_profile() -> None:
    """Register the profiles and load the one that is asked for: `ci` under CI=true, `dev` elsewhere.

    No example has a deadline, because a busy machine is no reason to fail.
    """
    for name, count in _EXAMPLES.items():
        settings.register_profile(
            name,
            deadline=None,
            max_examples=count,
            derandomize=name != "nightly",
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(_wanted())


def _wanted() -> str:
    return os.environ.get(_VARIABLE) or ("ci" if in_ci() else "dev")


def seeds(few: Sequence[int], *, nightly: Sequence[int]) -> Sequence[int]:
    """The seeds of a costly story: a few, and all of them in the nightly run."""
    return nightly if _wanted() == "nightly" else few


def examples(share: float) -> settings:
    """A decorator of a property: `share` times as many examples as the profile draws, rounded, one at least.

    A property with costly examples takes a share below 1, one that looks for something rare a share above 1.
    """
    return settings(max_examples=max(1, round(settings.default.max_examples * share)))
