"""The part of the settings that says how a process reaches its servers."""

from typing import TYPE_CHECKING

from colo_common.adapters.nats_access import NatsAccess, without_password
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.model.invalid import InvalidInput
from colo_common.model.loopback import is_loopback_url
from colo_common.runtime.settings import Common

if TYPE_CHECKING:
    from colo_common.adapters.redis_access import RedisAccess

__all__ = ["check_reach", "nats_access_of", "redis_access_of", "redis_replicas_of", "stream_wish_of"]


def check_reach(common: Common) -> None:
    """Raise InvalidInput for a server of another machine that lets in everybody: whoever else reaches it could do the same.

    A server that is reached through a password, a key or a certificate has been told whom to let in.
    """
    if common.insecure_servers:
        return
    nats = nats_access_of(common)
    has_redis = bool(common.redis_password_file or common.redis_cert_file or "@" in common.redis_url)
    for field, url, is_identified in (
        ("nats_url", nats.shown, nats.is_identified),
        ("redis_url", without_password(common.redis_url), has_redis),
    ):
        if not is_identified and not all(is_loopback_url(each) for each in url.split(",")):
            rule = (
                "must be this machine while no credentials are given (`colo admin credentials init`), "
                "or set insecure_servers where only friends reach it"
            )
            raise InvalidInput(field, rule, url)


def nats_access_of(common: Common) -> NatsAccess:
    """How this process reaches NATS."""
    return NatsAccess(
        url=common.nats_url,
        ca_file=common.nats_ca_file,
        cert_file=common.nats_cert_file,
        key_file=common.nats_key_file,
        creds_file=common.nats_creds_file,
        nkey_file=common.nats_nkey_file,
        user=common.nats_user,
        password_file=common.nats_password_file,
    )


def stream_wish_of(common: Common) -> StreamWish:
    """What the operator asks of the streams."""
    return StreamWish(replicas=common.stream_replicas, disk_bytes=common.stream_disk_bytes)


def redis_access_of(common: Common) -> "RedisAccess":
    """How this process reaches Redis."""
    # Agents of a node have no store and do not pay for importing the library.
    from colo_common.adapters.redis_access import RedisAccess

    return RedisAccess(
        url=common.redis_url,
        ca_file=common.redis_ca_file,
        cert_file=common.redis_cert_file,
        key_file=common.redis_key_file,
        user=common.redis_user,
        password_file=common.redis_password_file,
        sentinel_password_file=common.redis_sentinel_password_file,
    )


def redis_replicas_of(common: Common) -> int:
    """How many replicas must have a write before it counts. Raises InvalidInput for a bad address.

    Behind sentinels it is one where nothing is set: a primary that is cut off from them while it still reaches its clients takes
    writes and leases that the next primary never sees, and with one replica none of those counts.
    """
    if common.redis_min_replicas is not None:
        return common.redis_min_replicas
    return 0 if redis_access_of(common).sentinel() is None else 1
