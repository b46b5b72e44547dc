"""Who asks, and what that gives the right to."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.events.requests import Refusal

__all__ = ["ALL", "OPEN", "Principal", "Right", "Role"]

#: As a tenant or queue of a principal: every one.
ALL: Final = "*"


class Role(StrEnum):
    """A viewer reads, a submitter also submits and cancels jobs, an operator does everything."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"


class Right(StrEnum):
    """What a route needs. `view` is for what is of the principal's tenants or of nobody, `view-all` for what shows others' work."""

    PUBLIC = "public"
    VIEW = "view"
    VIEW_ALL = "view-all"
    SUBMIT = "submit"
    OPERATE = "operate"


_ROLES_OF: Final = {
    Right.PUBLIC: (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR),
    Right.VIEW: (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR),
    Right.VIEW_ALL: (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR),
    Right.SUBMIT: (Role.SUBMITTER, Role.OPERATOR),
    Right.OPERATE: (Role.OPERATOR,),
}
_OF_ALL: Final = (Right.VIEW_ALL, Right.OPERATE)


class Principal(Struct, frozen=True, kw_only=True):
    """A name, a role, and the tenants and queues that it is for; "*" is all. `token` is the id of the token, never its secret.

    `is_authenticated` False: the gateway asks nobody who he is.
    """

    name: str
    role: Role
    tenants: tuple[str, ...] = (ALL,)
    queues: tuple[str, ...] = (ALL,)
    token: str = ""
    is_authenticated: bool = True

    @property
    def is_for_all(self) -> bool:
        """Whether it is for every tenant and every queue."""
        return ALL in self.tenants and ALL in self.queues

    @property
    def only_tenant(self) -> str:
        """The one tenant that it is for; empty for none or several."""
        return self.tenants[0] if len(self.tenants) == 1 and ALL not in self.tenants else ""

    @property
    def seen_tenants(self) -> tuple[str, ...]:
        """The tenants whose jobs it may see; () for all."""
        return () if ALL in self.tenants else self.tenants

    @property
    def seen_queues(self) -> tuple[str, ...]:
        """The queues whose jobs it may see; () for all."""
        return () if ALL in self.queues else self.queues

    def refusal(self, right: Right) -> Refusal | None:
        """Why it may not do what needs the right (403); None when it may."""
        needed = _ROLES_OF[right]
        if self.role not in needed:
            rule = f"has the role {self.role.value}, and this needs {' or '.join(role.value for role in needed)}"
            return Refusal(code=403, field="token", rule=rule, got=self.name)
        if right in _OF_ALL and not self.is_for_all:
            rule = f"shows or changes what other tenants have, and the token is {self._scope()}"
            return Refusal(code=403, field="token", rule=rule, got=self.name)
        return None

    def refusal_of_job(self, tenant: str, queue: str) -> Refusal | None:
        """Why it may not have to do with a job of the tenant in the queue (403; "" is left out); None when it may."""
        if tenant and ALL not in self.tenants and tenant not in self.tenants:
            return Refusal(code=403, field="tenant", rule=f"is another one: the token is {self._scope()}", got=tenant)
        if queue and ALL not in self.queues and queue not in self.queues:
            return Refusal(code=403, field="queue", rule=f"is another one: the token is {self._scope()}", got=queue)
        return None

    def _scope(self) -> str:
        parts = []
        for word, names in (("tenant", self.tenants), ("queue", self.queues)):
            if ALL not in names:
                parts.append(f"for {word}{'' if len(names) == 1 else 's'} {', '.join(names) or '(none)'}")
        return " and ".join(parts) or "for everything"


OPEN: Final = Principal(name="anonymous", role=Role.OPERATOR, is_authenticated=False)
"""Everybody, at a gateway that listens on this machine alone and has no tokens."""
