from dataclasses import replace
from pathlib import Path

import pytest

from experiments.datasets import drawn_corpora
from experiments.datasets.drawn_corpora import draw_missing_corpus, load_miniature
from miniature.corpora import PLANS
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.errors import DatasetError


def test_the_families_are_four_and_eight_corpora_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tuple(
        replace(plan, documents=2, pages=(3, 4), questions={"topic": 1}, lookalikes=0) for plan in PLANS
    )
    monkeypatch.setattr(drawn_corpora, "PLANS", small)
    first, second = load_miniature(tmp_path)
    assert [corpus.name for corpus in first.corpora] == ["alder", "birch", "cedar", "damson"]
    assert len(second.corpora) == 8
    assert (first.name, second.name) == ("miniature-1", "miniature-2")


def test_a_drawn_corpus_is_judged_on_the_pages_that_were_drawn(tmp_path: Path) -> None:
    corpus = draw_missing_corpus(PLANS[9], tmp_path)
    drawn = {ref.reference for ref in list_pages(corpus.documents) if isinstance(ref, PageRef)}
    keep_judged = {page for grades in corpus.qrels.values() for page in grades}
    assert keep_judged < drawn
    assert len(corpus.queries) == sum(PLANS[9].questions.values())


def test_a_corpus_that_lies_there_whole_is_not_drawn_again(tmp_path: Path) -> None:
    plan = replace(PLANS[0], documents=3, questions={"topic": 2}, lookalikes=0)
    first = draw_missing_corpus(plan, tmp_path)
    paths = sorted((tmp_path / "documents").glob("*.pdf"))
    stamps = [path.stat().st_mtime_ns for path in paths]
    assert draw_missing_corpus(plan, tmp_path).qrels == first.qrels
    assert [path.stat().st_mtime_ns for path in paths] == stamps
    content = paths[0].read_bytes()
    paths[0].unlink()
    draw_missing_corpus(plan, tmp_path)
    assert paths[0].read_bytes() == content


def test_an_unknown_corpus_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"'oak'; there are: alder, birch"):
        load_miniature(tmp_path, corpora=frozenset({"oak", "fir"}))
