"""Whatever bytes a page's block holds: only an error of ours may come of it."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from ridgerank.errors import RidgeRankError
from ridgerank.store.layout import pack, unpack
from tests.store.pages import prefix

_BLOCK = pack(prefix(0)).tobytes()


@settings(max_examples=300, deadline=None)
@given(
    flips=st.lists(st.tuples(st.integers(0, 63), st.integers(1, 255)), max_size=4), end=st.integers(0, 200)
)
def test_a_changed_or_cut_block_is_read_or_refused(flips: list[tuple[int, int]], end: int) -> None:
    block = bytearray(_BLOCK if end > 100 else _BLOCK[:end])
    for at, mask in flips:
        if at < len(block):
            block[at] ^= mask
    with suppress(RidgeRankError):
        unpack(bytes(block))
