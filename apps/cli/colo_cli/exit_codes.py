"""The exit codes of `colo`, for scripts. docs/exit-codes.md is the same as a page."""

from typing import Final, NamedTuple

__all__ = ["EXIT_CODES", "SPECIAL", "ExitCode", "exit_codes_text"]


class ExitCode(NamedTuple):
    """A code and what it says."""

    code: int
    says: str


EXIT_CODES: Final = (
    ExitCode(0, "done, or the answer is yes; also when Ctrl-C or a closed pipe ended a command that lists or watches"),
    ExitCode(1, "no: refused, not found, or a service or the gateway does not answer"),
    ExitCode(2, "the call or the input is wrong: the error names the flag or the field and the rule"),
    ExitCode(3, "not known: the request was sent and no answer came; the error names the command that finds out"),
)
SPECIAL: Final = (
    ("colo plan", "0 every replica fits, 1 not all do, 2 cannot be said"),
    ("colo fits", "0 all that is asked for fits, 1 not all does, 2 the question is wrong"),
    ("colo status", "0 all is well, 1 something is wrong"),
    ("colo submit", "1 also when the plan of --check-index is outdated, 3 when nobody knows whether it was accepted"),
    ("colo lab", "0 the verdict is OK, 1 it is not, or the lab failed"),
)
"""What a code means for one command, where that is more than above."""


def exit_codes_text() -> str:
    """The page for a terminal."""
    lines = [f"{each.code}  {each.says}" for each in EXIT_CODES]
    width = max(len(command) for command, _ in SPECIAL)
    return "\n".join([*lines, "", *(f"{command:<{width}}  {says}" for command, says in SPECIAL)]) + "\n"
