"""How a command says no."""

__all__ = ["Failure"]


class Failure(Exception):
    """One sentence for people and the exit status: 1 the answer is no, 2 the input is wrong."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status
