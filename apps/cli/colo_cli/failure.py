"""The errors by which a command ends: a sentence and an exit status."""

__all__ = ["Failure", "CommandRefused"]


class Failure(Exception):
    """A sentence for the user and the exit status: 1 when the answer is no, 2 when the input is wrong."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class CommandRefused(Failure):
    """The gateway refused: `code` is the HTTP status, `field` the field that broke a rule, "" when the gateway named none."""

    def __init__(self, sentence: str, status: int, code: int, field: str) -> None:
        super().__init__(sentence, status)
        self.code = code
        self.field = field
