"""A workload says values of its own metric to the collector of its node, which otherwise scrapes them."""

from msgspec import Struct

__all__ = ["MetricTaken", "PushMetric"]


class PushMetric(Struct, frozen=True, kw_only=True):
    """The values that a workload measured since it last said some, the oldest first: 1 to 100 finite numbers from 0 to 1e12.

    The operator of `node` declared the metric of `workload` (business_metrics) and who may say it: `token` is the word whose
    SHA-256 he wrote there. `age_ms` (at most a minute) is how old the newest value was when the message was sent. Refused for a
    workload without such a declaration (404), another token (403), values that break the rule (400), and more than ten messages a
    second (429); a refused message changes nothing.
    """

    node: str
    workload: str
    values: tuple[float, ...]
    token: str = ""
    age_ms: int = 0


class MetricTaken(Struct, frozen=True, kw_only=True):
    """So many values of that metric were taken; the next sample of the node has them."""

    metric: str
    taken: int
