"""The trace of a placement. Its ids are computed from replica and attempt, so every service uses the same trace without asking."""

import re
from functools import lru_cache
from hashlib import sha256 as _sha256
from math import ceil
from typing import Final

from colo_common.model.placement import attempt_key

__all__ = ["child_traceparent", "placement_trace", "span_of", "trace_is_sampled", "trace_of"]

# W3C trace context, version 00: trace id, span id, flags.
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def placement_trace(replica: str, attempt: int, sample_ratio: float = 1.0) -> str:
    """The W3C traceparent of an attempt's root span.

    The trace id is the first 16 bytes of sha256("replica#attempt"), the root span id the next 8. The attempt is sampled
    when the first 32 bits of the trace id, as a share of 2^32, lie below `sample_ratio`, so every service decides the same.
    """
    digest = _sha256(attempt_key(replica, attempt).encode()).hexdigest()
    flags = "01" if digest < _sampling_bound(sample_ratio) else "00"
    return f"00-{digest[:32]}-{digest[32:48]}-{flags}"


@lru_cache(maxsize=16)
def _sampling_bound(sample_ratio: float) -> str:
    """A text that is greater than a hex digest exactly when the digest's first 32 bits as a share of 2^32 lie below the ratio."""
    if not sample_ratio > 0:
        # No text is smaller than the empty one.
        return ""
    bound = ceil(min(sample_ratio, 1.0) * 4_294_967_296)
    # Every hex digit is smaller than "g".
    return f"{bound:08x}" if bound < 4_294_967_296 else "g"


def trace_of(traceparent: str) -> str:
    """The trace id (32 hex digits), or "" when the text is not a traceparent."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found.group(1) if found else ""


def span_of(traceparent: str) -> str:
    """The span id (16 hex digits), or "" when the text is not a traceparent."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found.group(2) if found else ""


def trace_is_sampled(traceparent: str) -> bool:
    """Whether spans of the trace are kept: the sampled bit of its flags; False when the text is not a traceparent."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return bool(found) and bool(int(traceparent[-2:], 16) & 1)


def child_traceparent(traceparent: str, span_id: str) -> str:
    """The same trace and flags with another span id, or "" when the text is not a traceparent."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return f"00-{found.group(1)}-{span_id}-{found.group(3)}" if found else ""
