"""A corpus becomes `Scored`: candidates by a retriever, margins by the full model, states over its store."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ridgerank.calibration.margins import MarginCache
from ridgerank.calibration.sight import see_pages
from ridgerank.calibration.teacher import Teacher
from ridgerank.evaluation.scored import Scored
from ridgerank.lists import Floats, Lists
from ridgerank.records import Candidate, Query
from ridgerank.retrievers.base import Retriever
from ridgerank.runs.run import Qrels
from ridgerank.shallow import ShallowPass

CANDIDATES = 20
"""K, as in the paper."""


def score_corpus(
    corpus: str,
    shallow: ShallowPass,
    retriever: Retriever,
    queries: Sequence[Query],
    qrels: Qrels,
    margins: MarginCache,
    *,
    candidates: int = CANDIDATES,
    watcher: Callable[[str, int], None] = lambda stage, done: None,
) -> Scored:
    """Score the candidates of every query; judgements name pages by reference.

    Margins that `margins` lacks are taken and kept there. `watcher` hears of pages that were read at full
    depth and of queries that were run.
    """
    store, backbone = shallow.store, shallow.backbone
    found = retriever.search_many([query.text for query in queries], candidates)
    _teach(shallow, margins, {q.text: own for q, own in zip(queries, found, strict=True)}, watcher)
    states: list[Floats] = []
    lens: list[Floats] = []
    targets: list[float | None] = []
    for query, own in zip(queries, found, strict=True):
        ran = shallow.run(query.text, [candidate.page_id for candidate in own])
        states.append(ran.states.cpu().numpy().astype(np.float64))
        lens.append(backbone.margins(ran.states).cpu().numpy().astype(np.float64))
        targets += [margins.margin(query.text, candidate.page_id) for candidate in own]
        watcher("query", 1)
    flat = [candidate for own in found for candidate in own]
    return Scored(
        corpus=corpus,
        queries=tuple(query.query_id for query in queries),
        pages=tuple(store.reference(candidate.page_id) for candidate in flat),
        lists=Lists.of_lengths(len(own) for own in found),
        retriever=np.array([candidate.score for candidate in flat]),
        margins=np.array(targets, dtype=np.float64),
        states=np.concatenate(states),
        lens=np.concatenate(lens),
        qrels=qrels,
    )


def _teach(
    shallow: ShallowPass,
    margins: MarginCache,
    wanted: Mapping[str, Sequence[Candidate]],
    watcher: Callable[[str, int], None],
) -> None:
    teacher = Teacher(shallow.backbone, margins)
    teacher.want(wanted)
    for batch in see_pages(shallow.store, teacher.missing, max_pixels=shallow.backbone.max_pixels):
        teacher.read(batch)
        watcher("page", len(batch))
