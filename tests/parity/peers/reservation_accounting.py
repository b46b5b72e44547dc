"""What a node has promised, when reservations and their owners are both in its books.

A reservation and the owners that use it are one promise, as large as the larger of the two:

    promised(resource) = max(reserved, allocated to owners)

Both stand in the sum of requests, so the smaller one is taken out again. Taking out all that owners use, as
koordinator-sh/koordinator:reservation/transformer.go does, makes a node look freer than it is once an owner outgrows its
reservation.

Colo's own books are kept owner by owner (`colo_scheduler.reservations.book`).
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from colo_scheduler.reservations.amounts import Amounts, plus, total_of

__all__ = ["Account", "Books", "Use", "allocated_of", "books_of"]


class Account(Struct, frozen=True, kw_only=True):
    """A reservation: what it reserves, and the resources that owners take from it."""

    name: str
    reserved: dict[str, int]
    names: tuple[str, ...]


class Use(Struct, frozen=True, kw_only=True):
    """A replica on the node; `reservation` is the one it uses, "" for none."""

    request: dict[str, int]
    reservation: str = ""


class Books(Struct, frozen=True, kw_only=True):
    """Sums of a node. `raw` counts everything, `requested` counts unmatched reservations once with their owners.

    `matched_allocated` is what owners took from the matched reservations, `allocated` the same by reservation, `promised` counts
    every reservation once.
    """

    raw: dict[str, int]
    requested: dict[str, int]
    matched_allocated: dict[str, int]
    allocated: dict[str, dict[str, int]]
    promised: dict[str, int]


def allocated_of(requests: Sequence[Amounts], names: Collection[str]) -> dict[str, int]:
    """What these owners take from a reservation that controls these resources."""
    return total_of(masked(request, names) for request in requests)


def books_of(accounts: Sequence[Account], uses: Sequence[Use], matched: Collection[str]) -> Books:
    """Sum a node up. `matched` names the reservations that the request at hand may use."""
    allocated = {
        account.name: allocated_of([use.request for use in uses if use.reservation == account.name], account.names)
        for account in accounts
    }
    raw = plus(total_of(account.reserved for account in accounts), total_of(use.request for use in uses))
    twice = {account.name: least_of(allocated[account.name], account.reserved) for account in accounts}
    return Books(
        raw=raw,
        requested=less(raw, total_of(counted for name, counted in twice.items() if name not in matched)),
        matched_allocated=total_of(allocated[account.name] for account in accounts if account.name in matched),
        allocated=allocated,
        promised=less(raw, total_of(twice.values())),
    )


def less(first: Amounts, second: Amounts) -> dict[str, int]:
    """The difference, by name; it may be below zero."""
    return plus(first, {name: -amount for name, amount in second.items()})


def least_of(first: Amounts, second: Amounts) -> dict[str, int]:
    """The smaller amount for the names of `first`."""
    return {name: min(amount, second.get(name, 0)) for name, amount in first.items()}


def masked(amounts: Amounts, names: Collection[str]) -> dict[str, int]:
    """Only these names."""
    return {name: amount for name, amount in amounts.items() if name in names}
