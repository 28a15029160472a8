"""Table 3: what each component is worth, on the calibration sample (§4.4)."""

from collections.abc import Callable
from statistics import fmean

import numpy as np

from experiments.protocols import ScoredCorpus
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.tables.table import Cell, Column, Row, Table, text_columns
from ridgerank.ragged import Floats
from ridgerank.readout import CenteredMoments, ridge_path

Score = Callable[[int], tuple[Floats, float]]
"""The number of a corpus → its scores and the weight they are fused with."""


NAMES = {
    "operating point": "− operating point (w = 1)",
    "fitted readout": "− fitted readout (logit lens)",
    "list centering": "− list centering (pointwise, with intercept)",
    "full": "RidgeRank",
}
"""Key of a row → what is removed."""


def component_quality(analysis: Analysis) -> dict[str, list[float]]:
    """Key of a row → nDCG@5 corpus by corpus, of the first backbone."""
    return analysis.cached("components", lambda: _component_quality(analysis))


def _component_quality(analysis: Analysis) -> dict[str, list[float]]:
    backbone, weight = analysis.settings.backbones[0], analysis.settings.sample_weight
    samples, readouts = analysis.samples(backbone), analysis.readouts(backbone)
    pointwise = _pointwise(samples, readouts.choice.deployed)
    scores: dict[str, Score] = {
        "operating point": lambda n: (samples[n].states @ readouts.vectors[n], 1.0),
        "fitted readout": lambda n: (samples[n].lens, weight),
        "list centering": lambda n: (samples[n].states @ pointwise[n], weight),
        "full": lambda n: (samples[n].states @ readouts.vectors[n], weight),
    }
    return {key: _by_corpus(samples, score) for key, score in scores.items()}


def table3(analysis: Analysis) -> Table:
    """Without fusion, without a fit, without centering; of the first backbone."""
    settings = analysis.settings
    backbone, weight = settings.backbones[0], settings.sample_weight
    samples, penalty = analysis.samples(backbone), analysis.readouts(backbone).choice.deployed
    quality = component_quality(analysis)
    table_rows = []
    for key, name in NAMES.items():
        table_rows.append(_row(name, quality[key], quality["full"], last=key == "full"))
        published = paper.look_up("table3", key) if paper.model_name(backbone) == "Qwen2.5-VL-7B" else None
        if published is not None:
            names = [None if each is None else published.get(each) for each in _names(samples)]
            best = [
                None if each is None else paper.look_up("table3", "full", each) for each in _names(samples)
            ]
            every = [
                (published["Avg"], paper.look_up("table3", "full", "Avg")),
                *zip(names, best, strict=True),
            ]
            cells: list[Cell] = [name]
            for value, whole in every:
                cells += [value, None if value is None or key == "full" else value - whole]
            table_rows.append(Row(tuple(cells), source=paper.SOURCE))
    columns = [*text_columns("component"), Column("avg"), Column("Δ", "+.1f")]
    for sample in samples:
        columns += [Column(sample.corpus), Column(f"Δ {sample.corpus}", "+.1f")]
    counts = ", ".join(f"{sample.corpus} {len(sample.queries)}" for sample in samples)
    return Table(
        "table3",
        f"Table 3. Components of RidgeRank, {backbone}",
        f"nDCG@5 in percent on the {sum(len(sample.queries) for sample in samples)} calibration queries, "
        f"each corpus by the readout that left it out, w = {weight} unless fusion is removed; Δ is what "
        "removing a component costs.",
        tuple(columns),
        tuple(table_rows),
        (f"queries of the sample: {counts}", f"λ = {penalty:g} throughout"),
    )


def _pointwise(samples: list[ScoredCorpus], penalty: float) -> Floats:
    """(corpora, dim): ridge over all pairs with one intercept, each corpus left out in turn.

    That is eq. 8 with a single list that holds every pair. The intercept moves all scores alike.
    """
    fitted = []
    for left_out in range(len(samples)):
        others = [sample for number, sample in enumerate(samples) if number != left_out]
        states = np.concatenate([sample.states for sample in others])
        moments = CenteredMoments(states.shape[1])
        moments.add(states, np.concatenate([sample.margins for sample in others]))
        fitted.append(ridge_path(moments, np.array([penalty]))[0])
    return np.stack(fitted)


def _by_corpus(samples: list[ScoredCorpus], score: Score) -> list[float]:
    quality = []
    for number, sample in enumerate(samples):
        scores, weight = score(number)
        quality.append(float(sample.fused_ndcg(scores, weight).mean()))
    return quality


def _row(name: str, quality: list[float], full: list[float], *, last: bool) -> Row:
    cells: list[Cell] = [name]
    for value, whole in zip([fmean(quality), *quality], [fmean(full), *full], strict=True):
        cells += [value, None if last else value - whole]
    return Row(tuple(cells))


def _names(samples: list[ScoredCorpus]) -> list[str | None]:
    return [paper.corpus_name(sample.corpus) for sample in samples]
