"""Bodies that do not arrive, or arrive too large."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from starlette.types import Message

from ridgerank.serving.http_errors import BodyRefused
from ridgerank.serving.middleware import BodyReceiver
from ridgerank.serving.settings import Limits

LIMITS = Limits(body_bytes=1000, small_body_bytes=100, large_bodies=2, body_seconds=0.05)


def sender(parts: Sequence[bytes], *, whole: bool = True) -> Callable[[], Awaitable[Message]]:
    """A caller who sends these parts, and then nothing more unless the body is whole."""
    remaining = list(parts)

    async def receive() -> Message:
        if not remaining:
            await asyncio.Event().wait()
        part = remaining.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(remaining) or not whole}

    return receive


def receive_body(limits: Limits, parts: Sequence[bytes], *, whole: bool = True) -> Message:
    async def once() -> Message:
        return await BodyReceiver(limits).bounded(sender(parts, whole=whole))()

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("parts", "whole", "status", "code"),
    [([b"{"], False, 408, "body_late"), ([b"x" * 600, b"x" * 600], True, 413, "too_large")],
)
def test_a_body_that_is_late_or_too_large_is_refused(
    parts: list[bytes], whole: bool, status: int, code: str
) -> None:
    with pytest.raises(BodyRefused) as refused:
        receive_body(LIMITS, parts, whole=whole)
    assert (refused.value.status_code, refused.value.code) == (status, code)
    assert receive_body(LIMITS, [b"a", b"", b"bc"])["body"] == b"abc"


def test_half_sent_bodies_keep_no_small_one_out_and_large_ones_only_while_they_arrive() -> None:
    limits = Limits(body_bytes=1000, small_body_bytes=100, large_bodies=2, body_seconds=60)

    async def crowd() -> None:
        bodies = BodyReceiver(limits)
        half = [asyncio.ensure_future(bodies.bounded(sender([b"x" * 900], whole=False))()) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await bodies.bounded(sender([b"x" * 100]))())["body"] == b"x" * 100
        with pytest.raises(BodyRefused) as refused:
            await bodies.bounded(sender([b"x" * 600]))()
        assert refused.value.status_code == 429
        for task in half:
            task.cancel()
        await asyncio.gather(*half, return_exceptions=True)
        assert len((await bodies.bounded(sender([b"x" * 600]))())["body"]) == 600

    asyncio.run(crowd())
