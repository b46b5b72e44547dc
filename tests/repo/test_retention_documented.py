"""docs/retention.md says of every stream what the registry says."""

from __future__ import annotations

import re

from colo_common.events.registry import DISK_BYTES, STREAMS
from colo_common.model.duration import format_duration
from colo_common.model.quantity import format_bytes
from tests.repo.tree import ROOT


def test_the_page_of_retention_has_the_limits_of_every_stream_and_their_sum() -> None:
    text = (ROOT / "docs" / "retention.md").read_text()
    written = dict(re.findall(r"^\| (COLO_\w+) \| ([^|]+ \| [^|]+?) \|", text, re.MULTILINE))
    expected = {
        stream.value: f"{format_bytes(limits.max_bytes).replace('Gi', ' GiB').replace('Mi', ' MiB')} | "
        + (re.sub("([a-z])", r" \1", format_duration(limits.max_age_s * 1_000)) if limits.max_age_s else "ever")
        for stream, limits in STREAMS.items()
    }
    assert written == expected
    assert f"{DISK_BYTES / (1 << 30):.1f} GiB on each NATS server" in text
