"""Margins on disk: kept as they are made, dropped when they are another model's."""

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from ridgerank.calibration.teacher import FILE_NAME, TargetCache
from ridgerank.errors import WriteError
from tests.store.pages import LINEAGE


def test_what_was_kept_is_read_back_to_the_last_digit(tmp_path: Path) -> None:
    cache = TargetCache(tmp_path, LINEAGE)
    cache.add({"page": {"first?": 0.1 + 0.2, "second?": -1e-17}, "other": {"first?": 3.0}})
    cache.add_written_query("page", "what it says")
    again = TargetCache(tmp_path, LINEAGE)
    assert again.margin("first?", "page") == 0.1 + 0.2
    assert again.margin("second?", "page") == -1e-17
    assert again.margin("second?", "other") is None
    assert (again.written_query("page"), again.written_query("other")) == ("what it says", None)
    assert len(again) == 3


def test_a_line_cut_short_by_a_kill_is_dropped_wherever_it_was_cut(tmp_path: Path) -> None:
    cache = TargetCache(tmp_path, LINEAGE)
    cache.add({"page": {"q": 1.0}})
    whole = (tmp_path / FILE_NAME).read_bytes()
    cache.add({"other": {"q": 2.0}})
    both = (tmp_path / FILE_NAME).read_bytes()
    for length in range(len(whole), len(both)):
        (tmp_path / FILE_NAME).write_bytes(both[:length])
        reopened = TargetCache(tmp_path, LINEAGE)
        assert (reopened.margin("q", "page"), reopened.margin("q", "other")) == (1.0, None)
        reopened.add({"third": {"q": 3.0}})
        assert TargetCache(tmp_path, LINEAGE).margin("q", "third") == 3.0


def test_margins_of_another_model_or_prompt_are_forgotten_but_not_those_of_another_store(
    tmp_path: Path,
) -> None:
    TargetCache(tmp_path, LINEAGE).add({"page": {"q": 1.0}})
    other_store = replace(LINEAGE, storage=replace(LINEAGE.storage, exit_layer=2))
    assert TargetCache(tmp_path, other_store).margin("q", "page") == 1.0
    assert TargetCache(tmp_path, replace(LINEAGE, prompt="another")).margin("q", "page") is None
    assert len(TargetCache(tmp_path, LINEAGE)) == 0


def test_both_targets_of_a_pair_are_kept_apart(tmp_path: Path) -> None:
    cache = TargetCache(tmp_path, LINEAGE)
    cache.add({"page": {"q": 1.0}})
    cache.add({"page": {"q": -2.5, "other": -3.5}}, target="likelihood")
    for reopened in (cache, TargetCache(tmp_path, LINEAGE)):
        assert reopened.margin("q", "page") == reopened.target("margin", "q", "page") == 1.0
        assert reopened.target("likelihood", "q", "page") == -2.5
        assert reopened.target("margin", "other", "page") is None
        assert len(reopened) == 3


def test_a_disk_that_takes_no_more_is_named(tmp_path: Path) -> None:
    """The limit on the size of files stands in for the end of a disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(WriteError, match=r"margins\.jsonl cannot be written: File too large"):
            TargetCache(tmp_path, LINEAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
