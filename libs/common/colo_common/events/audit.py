"""Who changed something through the gateway, or tried to."""

from colo_common.events.fact import Fact
from colo_common.model.units import Number

__all__ = ["RequestAudited"]


class RequestAudited(Fact, frozen=True, kw_only=True):
    """A request that changes something, accepted or refused, or any request whose sender was not let in, also by NATS or Redis.

    `who` is the name of the token or the subject of the identity provider, "anonymous" where the gateway asks nobody; `how` is
    token, oidc or open, and nats or redis where that server refused a login or a command; `token` is the token's id, never its
    secret. `address` is where the request came from, `request` its id. `status` is that of HTTP and `reason` the sentence of a
    refusal. `tenant`, `job` and `node` are what it is about, where it is.
    `alike`: as many refusals of this address before it were counted and not told one by one.
    """

    who: str
    how: str
    method: str
    path: str
    status: Number
    token: str = ""
    role: str = ""
    address: str = ""
    request: str = ""
    reason: str = ""
    tenant: str = ""
    job: str = ""
    node: str = ""
    alike: Number = 0
