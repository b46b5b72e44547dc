"""The errors by which a command ends: a sentence and an exit status."""

__all__ = ["CommandRefused", "Failure", "NoReply"]


class Failure(Exception):
    """A sentence for the user and the exit status: 1 when the answer is no, 2 when the input is wrong."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class NoReply(Failure):
    """The request may have reached the gateway, and no whole reply came back: whether it was done is not known."""


class CommandRefused(Failure):
    """The gateway refused: `code` is the HTTP status, `field` the field that broke a rule, "" when the gateway named none."""

    def __init__(self, sentence: str, status: int, code: int, field: str) -> None:
        super().__init__(sentence, status)
        self.code = code
        self.field = field

    def is_unknown(self, owner: str) -> bool:
        """Whether the service `owner` may have done what it was asked all the same: it gave no answer that makes sense, in time."""
        return self.code >= 500 and self.field in ("", owner)
