"""Which right each route needs. A route that is not listed needs an operator, so that a new one is never open by mistake."""

from collections.abc import Mapping
from typing import Final

from colo_gateway.door.principal import Right

__all__ = ["RIGHTS", "is_change", "right_of"]

_V, _A, _S, _O = Right.VIEW, Right.VIEW_ALL, Right.SUBMIT, Right.OPERATE

#: Method and path, as the description of the API has them.
RIGHTS: Final[Mapping[tuple[str, str], Right]] = {
    ("GET", "/livez"): Right.PUBLIC,
    ("GET", "/healthz"): Right.PUBLIC,
    ("GET", "/readyz"): Right.PUBLIC,
    ("GET", "/metrics"): Right.PUBLIC,
    ("GET", "/v1/openapi.json"): Right.PUBLIC,
    ("GET", "/v1/version"): Right.PUBLIC,
    ("POST", "/v1/jobs"): _S,
    ("GET", "/v1/jobs"): _V,
    ("GET", "/v1/jobs/{job}"): _V,
    ("DELETE", "/v1/jobs/{job}"): _S,
    ("GET", "/v1/jobs/{job}/explain"): _V,
    ("GET", "/v1/jobs/{job}/trace"): _V,
    ("POST", "/v1/plan"): _V,
    ("POST", "/v1/fits"): _V,
    ("GET", "/v1/queues"): _V,
    ("GET", "/v1/status"): _V,
    ("GET", "/v1/nodes"): _V,
    ("GET", "/v1/nodes/{node}/explain"): _V,
    ("GET", "/v1/restrictions"): _V,
    ("GET", "/v1/policy"): _V,
    ("GET", "/v1/services"): _V,
    ("GET", "/v1/tenants"): _A,
    ("GET", "/v1/nodes/{node}"): _A,
    ("GET", "/v1/nodes/{node}/cpus"): _A,
    ("GET", "/v1/nodes/{node}/drain"): _A,
    ("GET", "/v1/history"): _A,
    ("GET", "/v1/harm"): _A,
    ("GET", "/v1/evictions"): _A,
    ("GET", "/v1/evictions/{eviction}"): _A,
    ("GET", "/v1/stream"): _A,
    ("GET", "/v1/reservations"): _A,
    ("GET", "/v1/reservations/{name}"): _A,
    ("GET", "/v1/dead-letters"): _O,
    ("GET", "/v1/dead-letters/{seq}"): _O,
    ("POST", "/v1/dead-letters/{seq}/replay"): _O,
    ("DELETE", "/v1/dead-letters/{seq}"): _O,
    ("POST", "/v1/policy/check"): _A,
    ("PUT", "/v1/policy"): _O,
    ("POST", "/v1/policy/rollback"): _O,
    ("POST", "/v1/reservations"): _O,
    ("DELETE", "/v1/reservations/{name}"): _O,
    ("PUT", "/v1/nodes/{node}/external"): _O,
    ("DELETE", "/v1/nodes/{node}/external"): _O,
    ("POST", "/v1/restrictions"): _O,
    ("DELETE", "/v1/restrictions"): _O,
    ("GET", "/v1/audit"): _O,
}

# They ask with a body and change nothing.
_ASKS: Final = frozenset({("POST", "/v1/plan"), ("POST", "/v1/fits"), ("POST", "/v1/policy/check")})


def right_of(method: str, path: str) -> Right:
    """The right that a route needs. A path that is not served (empty) needs none: the answer is that it is not served."""
    if not path:
        return Right.VIEW
    return RIGHTS.get(("GET" if method == "HEAD" else method, path), Right.OPERATE)


def is_change(method: str, path: str) -> bool:
    """Whether the request changes something when it is accepted."""
    return method not in ("GET", "HEAD", "OPTIONS") and (method, path) not in _ASKS
