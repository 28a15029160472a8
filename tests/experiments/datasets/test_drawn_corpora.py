from dataclasses import replace
from pathlib import Path

from experiments.datasets.load import draw_missing_corpus
from miniature.corpora import PLANS
from ridgerank.documents.render import PageRef, list_pages


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
