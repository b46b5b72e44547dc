"""What the short way of the NATS client reads and writes is what the library reads, and what the protocol says."""

import asyncio
from collections.abc import Sequence

import nats.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.protocol.parser import Parser

from colo_common.adapters.nats_client import DirectClient, message_bytes

DIRECT, OTHER = 7, 12

Read = tuple[int | str, bytes, bytes, bytes, bytes]


class Recording(DirectClient):
    """Notes what comes, in its order: messages with the number of their subscription, and the server's pings."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[Read] = []
        self.direct[DIRECT] = self._take

    def _take(self, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        self.read.append((DIRECT, subject.encode(), reply.encode(), data, headers))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.read.append((sid, bytes(subject), bytes(reply), data, headers or b""))

    async def _process_ping(self) -> None:
        self.read.append(("ping", b"", b"", b"", b""))


def read_by(client: Recording, parser: Parser, parts: Sequence[bytes]) -> list[Read]:
    async def feed() -> None:
        for part in parts:
            await parser.parse(part)

    asyncio.run(feed())
    return client.read


def wire(sid: int, reply: bytes, headers: bytes, data: bytes) -> bytes:
    words = b"colo.v1.evt.a %d %s" % (sid, reply + b" " if reply else b"")
    if headers:
        return b"HMSG %s%d %d\r\n%s%s\r\n" % (words, len(headers), len(headers) + len(data), headers, data)
    return b"MSG %s%d\r\n%s\r\n" % (words, len(data), data)


MESSAGES = st.builds(
    wire,
    st.sampled_from((DIRECT, OTHER)),
    st.sampled_from((b"", b"_INBOX.a.1")),
    st.sampled_from((b"", b"NATS/1.0\r\nce-id: x\r\n\r\n", b"NATS/1.0 503\r\n\r\n")),
    st.sampled_from((b"", b"{}", b"MSG a 7 2\r\n{}\r\n", b"x" * 300)),
)


@given(st.lists(st.one_of(MESSAGES, st.sampled_from((b"PING\r\n", b"+OK\r\n"))), max_size=8), st.data())
def test_however_the_bytes_are_cut_they_are_read_as_the_library_reads_them(
    pieces: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=4)))
    parts = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    mine, library = Recording(), Recording()
    assert read_by(mine, mine._ps, parts) == read_by(library, Parser(library), [whole])


def test_a_line_that_is_no_message_is_the_library_s_affair() -> None:
    client = Recording()
    with pytest.raises(nats.errors.ProtocolError):
        read_by(client, client._ps, [b"MSG colo.v1.evt.a many 2\r\n{}\r\n"])


def test_a_message_without_headers_is_a_plain_one() -> None:
    assert message_bytes("a.b", "", [], b"{}") == b"PUB a.b  2\r\n{}\r\n"
    assert message_bytes("a.b", "_INBOX.1", [], b"") == b"PUB a.b _INBOX.1 0\r\n\r\n"


def test_lengths_are_those_of_the_bytes_not_of_the_characters() -> None:
    head = "NATS/1.0\r\nname: ü\r\nempty: \r\n\r\n".encode()
    found = message_bytes("a.b", "r", [("name", "ü"), ("empty", "")], b"{}")
    assert found == b"HPUB a.b r %d %d\r\n%s{}\r\n" % (len(head), len(head) + 2, head)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\n", "\r", "\r\n"])
def test_a_header_that_would_begin_another_line_is_refused(value: str) -> None:
    with pytest.raises(nats.errors.BadHeaderError):
        message_bytes("a.b", "", [("first", "x"), ("name", value)], b"{}")


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nb"])
def test_a_subject_that_would_break_the_line_is_refused(subject: str) -> None:
    with pytest.raises(nats.errors.BadSubjectError):
        message_bytes(subject, "", [], b"{}")
