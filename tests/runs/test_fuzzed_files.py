"""Whatever bytes a file of queries, a run or judgements holds: only an error of ours may come of it."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgerank.errors import RidgeRankError
from ridgerank.queries import read_queries
from ridgerank.trec import read_qrels, read_run

_WORDS = [b'{"query_id": 1, "text": ', b'"x"}', b"q Q0 a 1 0.5 t", b"q 0 a 1", b"\n", b"\xff", b"[", b"1e999"]
content = st.lists(st.sampled_from(_WORDS) | st.binary(max_size=8), max_size=12).map(b" ".join)


@pytest.mark.parametrize("read", [read_queries, read_run, read_qrels])
@settings(max_examples=100, deadline=None)
@given(data=content)
def test_any_bytes_are_read_or_refused(
    read: Callable[[Path], object], data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(data)
    with suppress(RidgeRankError):
        read(path)
