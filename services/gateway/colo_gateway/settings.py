"""The settings of the gateway."""

from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_common.model.loopback import is_loopback
from colo_common.model.ranges import check_ranges
from colo_common.runtime.settings import Common
from colo_gateway.door.forwarded import networks_of
from colo_gateway.door.oidc import OidcPolicy
from colo_gateway.door.tls import TlsPolicy

__all__ = ["GatewaySettings"]

#: The streams of facts keep them no longer.
_WEEK_S: Final = 7 * 86_400


class GatewaySettings(Common, frozen=True, kw_only=True):
    """The port `http_port` serves the API and the health pages; `health_port` (0: none) serves health pages and metrics alone, in
    plain HTTP, for probes that have no certificate of a client. `ask_timeout_s` bounds every request to another service.

    The gateway keeps `event_log_size` facts and `trace_size` traces. At its start it reads what happened in the last `history_s`
    (0: nothing), of each stream at most the newest `history_most` messages. At most `streams_max` event streams may be open, each
    with at most `stream_queue` facts in its queue.

    `tokens_file` is the file of `colo admin tokens`; with it, or with an `oidc_issuer`, everybody is asked who he is. Without them
    the gateway listens on this machine alone, unless `allow_anonymous`. An address may send `requests_per_s` (0: no limit), in a
    burst twice as many, and `failed_logins_per_min`, as many at once. `trusted_proxies` are networks of proxies, whose header
    X-Forwarded-For says from which address a request came. `nats_audit_nkey_file` holds the key of a user of NATS's system account,
    who hears which logins NATS refused ("": nobody does).
    """

    http_port: int = 8088
    health_port: int = 0
    ask_timeout_s: float = 5.0
    event_log_size: int = 10_000
    trace_size: int = 2_000
    history_s: int = 3_600
    history_most: int = 10_000
    streams_max: int = 100
    stream_queue: int = 2_000
    tokens_file: str = ""
    oidc: OidcPolicy = OidcPolicy()
    tls: TlsPolicy = TlsPolicy()
    allow_anonymous: bool = False
    requests_per_s: int = 1_000
    failed_logins_per_min: int = 30
    trusted_proxies: tuple[str, ...] = ()
    nats_audit_nkey_file: str = ""

    @property
    def is_local(self) -> bool:
        """Whether the gateway listens on this machine alone."""
        return is_loopback(self.http_host)

    def validate(self) -> None:
        """Raise InvalidInput for a limit or a timeout out of range, and for a door that would be open to other machines."""
        for name in ("event_log_size", "trace_size", "streams_max", "stream_queue"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, "must be at least 1", getattr(self, name))
        if self.health_port and self.health_port == self.http_port:
            raise InvalidInput("health_port", "must be another port than http_port", self.health_port)
        check_ranges(self, ("health_port", 0, 65_535), ("history_s", 0, _WEEK_S), ("history_most", 1, 1_000_000))
        if not 0 <= self.requests_per_s <= 1_000_000:
            raise InvalidInput("requests_per_s", "must be from 0 to 1000000", self.requests_per_s)
        if not 1 <= self.failed_logins_per_min <= 60_000:
            raise InvalidInput("failed_logins_per_min", "must be from 1 to 60000", self.failed_logins_per_min)
        networks_of(self.trusted_proxies)
        self.oidc.validate()
        self.tls.validate()
        is_asked = bool(self.tokens_file or self.oidc.issuer)
        if not is_asked and not self.is_local and not self.allow_anonymous:
            rule = (
                "must be this machine (127.0.0.1) while nobody is asked who he is: set tokens_file (`colo admin tokens add`) or "
                "oidc_issuer, or allow_anonymous where only friends reach this address"
            )
            raise InvalidInput("http_host", rule, self.http_host)
        if not 0 < self.ask_timeout_s <= 60:
            raise InvalidInput("ask_timeout_s", "must be above 0 and at most 60", self.ask_timeout_s)
