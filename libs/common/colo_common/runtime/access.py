"""The part of the settings that says how a process reaches its servers."""

from typing import TYPE_CHECKING

from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.runtime.settings import Common

if TYPE_CHECKING:
    from colo_common.adapters.redis_access import RedisAccess

__all__ = ["nats_access_of", "redis_access_of", "stream_wish_of"]


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
