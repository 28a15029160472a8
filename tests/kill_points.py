"""Processes that kill themselves at a point of their work: the same point however busy the machine is."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def killed_at(call: int, *, within: str = "ridgerank") -> Iterator[list[int]]:
    """SIGKILL this process at the n-th call of a function by these modules; tells how many there were."""
    calls = [0]

    def note(frame: FrameType, event: str, _: object) -> None:
        if "call" in event and frame.f_globals.get("__name__", "").startswith(within):
            calls[0] += 1
            if calls[0] == call:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
