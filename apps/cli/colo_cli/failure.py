"""How a command says no."""

__all__ = ["Failure", "CommandRefused"]


class Failure(Exception):
    """One sentence for people and the exit status: 1 the answer is no, 2 the input is wrong."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class CommandRefused(Failure):
    """The gateway said no: `code` is the HTTP status, `field` what broke a rule, empty where it did not say."""

    def __init__(self, sentence: str, status: int, code: int, field: str) -> None:
        super().__init__(sentence, status)
        self.code = code
        self.field = field
