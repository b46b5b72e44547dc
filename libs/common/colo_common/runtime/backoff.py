"""Exponential backoff: how long to wait before the next retry."""

import random

__all__ = ["Backoff"]


class Backoff:
    """Waits that double from `first_s` to `most_s`, each shortened by a random share so that many clients do not retry at once."""

    def __init__(self, rng: random.Random, *, first_s: float = 0.1, most_s: float = 5.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The next wait: between half of the current span and all of it."""
        span_s = self._next_s
        self._next_s = min(span_s * 2, self._most_s)
        return span_s * (0.5 + self._rng.random() / 2)

    def reset(self) -> None:
        """Start again with the first span, after a success."""
        self._next_s = self._first_s
