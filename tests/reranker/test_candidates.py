"""Candidates as users write them: lists, pairs, dicts; what is none of these is refused."""

from typing import Any

import numpy as np
import pytest

from ridgerank.errors import ScoreError
from ridgerank.records import Candidate
from ridgerank.reranker.candidates import separate_scores


@pytest.mark.parametrize(
    "candidates",
    [
        [("a", 2.0), ("b", 1.0)],
        {"a": 2.0, "b": 1.0},
        [Candidate("a", 2.0), Candidate("b", 1.0)],
        [["a", np.float32(2.0)], ("b", np.int64(1))],
    ],
)
def test_scores_are_kept_however_they_come(candidates: Any) -> None:  # noqa: ANN401
    assert separate_scores(candidates) == (["a", "b"], [2.0, 1.0])


def test_bare_names_have_no_scores() -> None:
    assert separate_scores(["a", "b"]) == (["a", "b"], None)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (None, "candidates of type NoneType, wanted a list of pages"),
        ("a.pdf#1", "candidates of type str"),
        ([("a", "5")], "with a number as score"),
        ([("a", None)], "with a number as score"),
        ([5], "a candidate 5, wanted a page"),
        ([None], "a candidate None"),
        ({"a": "5"}, "with a number as score"),
    ],
)
def test_what_is_no_candidate_is_refused(candidates: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ScoreError, match=message):
        separate_scores(candidates)
