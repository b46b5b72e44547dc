"""The keys of an identity provider: asked for seldom, kept while it is silent, and in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from colo_gateway.door.issuer_keys import IssuerKeys, KeysUnavailable


class Provider:
    """A provider whose answers, silences and failures the test chooses, and a clock that the test moves."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked = 0
        self.now_s = 0.0
        self.speaks = asyncio.Event()
        self.speaks.set()
        self.error: Exception | None = None
        self.keys = IssuerKeys(self._answer, lambda: self.now_s)

    async def _answer(self) -> Mapping[str, str]:
        self.asked += 1
        await self.speaks.wait()
        if self.error is not None:
            raise self.error
        return {name: f"key of {name}" for name in self.names}

    async def settle(self) -> None:
        """Let everything go on that can."""
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_ten_thousand_unknown_names_are_one_question() -> None:
    provider = Provider("a")
    provider.speaks.clear()
    waiting = [asyncio.create_task(provider.keys.key(f"x{number}")) for number in range(10_000)]
    await provider.settle()
    provider.speaks.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, KeyError) for each in found)
    assert await provider.keys.key("a") == "key of a"
    for number in range(100):
        with pytest.raises(KeyError):
            await provider.keys.key(f"y{number}")
    assert provider.asked == 1


@pytest.mark.asyncio
async def test_a_new_key_is_found_ten_seconds_later() -> None:
    provider = Provider("a")
    await provider.keys.key("a")
    provider.names = ("a", "b")
    provider.now_s = 9.9
    with pytest.raises(KeyError):
        await provider.keys.key("b")
    provider.now_s = 10.0
    assert await provider.keys.key("b") == "key of b"
    assert provider.asked == 2


@pytest.mark.asyncio
async def test_a_known_key_waits_for_no_answer() -> None:
    provider = Provider("a")
    await provider.keys.key("a")
    provider.now_s = 700.0
    provider.speaks.clear()
    stranger = asyncio.create_task(provider.keys.key("x"))
    await provider.settle()
    assert await asyncio.wait_for(provider.keys.key("a"), 30) == "key of a"
    assert provider.asked == 2
    stranger.cancel()
    provider.names = ("b",)
    provider.speaks.set()
    await provider.settle()
    assert await provider.keys.key("b") == "key of b", "who went away took the question from nobody"
    with pytest.raises(KeyError):
        await provider.keys.key("a")


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [OSError("refused"), TimeoutError(), ValueError("no JSON")])
async def test_the_last_keys_hold_for_an_hour_while_there_is_no_good_answer(error: Exception) -> None:
    provider = Provider("a")
    provider.error = error
    with pytest.raises(KeysUnavailable):
        await provider.keys.key("a")
    provider.error = None
    provider.now_s = 10.0
    await provider.keys.key("a")
    provider.error = error
    provider.now_s = 3609.0
    assert await provider.keys.key("a") == "key of a"
    await provider.settle()
    with pytest.raises(KeysUnavailable):
        await provider.keys.key("b")
    provider.now_s = 3610.0
    with pytest.raises(KeysUnavailable):
        await provider.keys.key("a")
    provider.error = None
    provider.now_s = 3630.0
    assert await provider.keys.key("a") == "key of a"
