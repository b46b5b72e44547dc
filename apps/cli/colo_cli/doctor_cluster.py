"""`colo doctor --cluster`: whether the servers of an installation keep what they acknowledge."""

import asyncio
from collections.abc import Sequence

import msgspec

from colo_cli.admin import admin_settings
from colo_cli.failure import Failure
from colo_cli.output import Format, print_data, print_table
from colo_common.adapters.nats_check import check_nats
from colo_common.adapters.redis_check import check_redis
from colo_common.adapters.server_check import ServerCheck
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.access import nats_access_of, redis_access_of, redis_replicas_of, stream_wish_of

__all__ = ["cluster_checks"]


def cluster_checks(settings: Sequence[str], monitors: Sequence[str], output: Format) -> int:
    """Print one row for each thing that was looked at; 1 when one of them is not as it must be."""
    common = admin_settings(settings)

    async def look() -> list[ServerCheck]:
        # All that may be refused comes before the first of the two is made, which nobody would await.
        nats, wish, redis, replicas = (
            nats_access_of(common),
            stream_wish_of(common),
            redis_access_of(common),
            redis_replicas_of(common),
        )
        of_nats, of_redis = await asyncio.gather(
            check_nats(nats, wish, monitors), check_redis(redis, min_replicas=replicas)
        )
        return [*of_nats, *of_redis]

    try:
        checks = asyncio.run(look())
    except InvalidInput as error:
        raise Failure(str(error), 2) from error
    if output != "table":
        print_data(msgspec.to_builtins(checks), output)
    else:
        words = {True: "yes", False: "no", None: "unknown"}
        rows = [[check.name, words[check.ok], check.detail, check.means] for check in checks]
        print_table(["CHECK", "", "DETAIL", "MEANS"], rows, "nothing found")
    return 1 if any(check.ok is False for check in checks) else 0
