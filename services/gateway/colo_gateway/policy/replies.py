"""What the routes of the colocation policy answer."""

from msgspec import Struct

from colo_common.events.policy import PolicyPreview, PolicyReply
from colo_common.model.colocation_policy import KEYS, ColocationPolicy

__all__ = ["KeyShown", "PolicyCheck", "PolicyDifference", "PolicyShown", "keys_shown"]


class KeyShown(Struct, frozen=True, kw_only=True):
    """A key of the document: its owner, whether a service follows it, and why not."""

    key: str
    value: str
    owner: str
    in_force: bool
    why: str = ""


class PolicyDifference(Struct, frozen=True, kw_only=True):
    """One place of the document that would be another one; "-": not given."""

    place: str
    old: str
    new: str


class PolicyShown(Struct, frozen=True, kw_only=True):
    """The reply of GET, PUT and rollback: what is in force, and each key with its owner."""

    reply: PolicyReply
    keys: tuple[KeyShown, ...]


class PolicyCheck(Struct, frozen=True, kw_only=True):
    """What a file says and what it would change; nothing was changed. `preview` None: overcommit does not answer now."""

    form: str
    policy: ColocationPolicy
    keys: tuple[KeyShown, ...]
    revision: int
    differences: tuple[PolicyDifference, ...]
    preview: PolicyPreview | None = None


def keys_shown(policy: ColocationPolicy) -> tuple[KeyShown, ...]:
    """Every key that the document gives, with the values of the defaults and of the overrides."""
    places = [("defaults", policy.defaults)]
    places += [(f"overrides[{number}]", each.values) for number, each in enumerate(policy.overrides)]
    own = [
        KeyShown(
            key=f"{place}.{name}",
            value=str(value).lower() if isinstance(value, bool) else str(value),
            owner=KEYS[name].owner,
            in_force=not KEYS[name].not_in_force,
            why=KEYS[name].not_in_force,
        )
        for place, values in places
        for name, value in values.given.items()
    ]
    unfollowed = [
        KeyShown(key=each.key, value=each.value, owner=each.owner, in_force=False, why=each.why)
        for each in policy.unfollowed
    ]
    declared = {} if policy.host_applications is None else policy.host_applications.texts() or {"applications": "none"}
    host = [
        KeyShown(key=f"host_applications.{place}", value=text, owner="collector", in_force=True)
        for place, text in declared.items()
    ]
    return (*own, *host, *unfollowed)
