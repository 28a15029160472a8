"""What tables and figures are made from: stages read, readouts fitted, arms ranked; each once.

Judgements are read here and nowhere below. Arrays of a corpus are kept while they are small (scores); states
are read, used and let go.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from experiments.baselines.base import Unavailable
from experiments.baselines.hybrid import (
    Fusion,
    by_aggregation,
    by_rank,
    by_standard_score,
    picked_weight,
)
from experiments.baselines.load import NAMES, Role
from experiments.protocols.scored_corpus import Scored, next_in_cycle
from experiments.reproduce.experiment import Lab, Site
from experiments.reproduce.prepare import roles_behind
from experiments.reproduce.protocol.cyclic_weights import cyclic_weights
from experiments.reproduce.protocol.fold_readouts import Readouts, fit_readouts, readouts_for
from experiments.reproduce.sample import calibration_sample
from ridgerank.evaluation.metrics import MEASURES, evaluate
from ridgerank.fusion.standardize import fuse
from ridgerank.ragged import Floats, Ragged
from ridgerank.runs.run import Run

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One arm on one corpus."""

    values: Floats
    """(measures, queries), percent; the mean over readouts where there are several."""
    weight: float
    """w, the mean over readouts where there are several; NaN where nothing is fused."""

    def mean(self, measure: str = "nDCG@5") -> float:
        """The mean over queries of one measure."""
        return float(self.values[MEASURES.index(measure)].mean())


@dataclass(frozen=True, slots=True, eq=False)
class Latency:
    """Mean milliseconds a query, over all queries of a family."""

    retrieval: float
    reading: float
    compute: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.retrieval + self.reading + self.compute


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One arm over the corpora of a family behind one retriever; without outcomes it says why."""

    key: str
    """What it is in the paper: a role, or `ours` and a backbone."""
    name: str
    outcomes: tuple[Outcome, ...]
    latency: Latency | None
    why: str = ""

    def macro(self, measure: str = "nDCG@5") -> float:
        """The mean over corpora of a measure."""
        return float(np.mean([outcome.mean(measure) for outcome in self.outcomes]))


class Analysis:
    """A lab's results, combined by the protocols of the paper."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.settings = lab.settings
        self.sample = calibration_sample(lab)
        self._kept: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Make something the first time it is asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        made: Made = self._kept[key]
        return made

    def corpora(self, family: int) -> list[str]:
        """Names, in cyclic order."""
        return [self.lab.corpus(site).name for site in self.lab.sites(family)]

    def scored(self, site: Site, retriever: str, backbone: str | None = None) -> Scored:
        """A corpus with its scores: with states and margins of `backbone`, or the first's margins alone."""
        if backbone is None:
            return self.once(("scored", site, retriever), lambda: self._scored(site, retriever, None))
        return self._scored(site, retriever, backbone)

    def references(self, site: Site) -> dict[str, str]:
        """Page id → the name judgements know it by."""
        return self.once(("names", site), lambda: self.lab.references(site))

    def readouts(self, backbone: str) -> Readouts:
        """Fitted on the calibration sample behind the first retriever."""
        return self.once(("readouts", backbone), lambda: fit_readouts(self.samples(backbone)))

    def samples(self, backbone: str) -> list[Scored]:
        """The calibration sample, corpus by corpus, as one backbone sees it."""
        first = self.settings.retrievers[0]
        return self.once(
            ("samples", backbone),
            lambda: [
                self.scored(site, first, backbone).take(self.sample[site.number])
                for site in self.lab.sites(0)
            ],
        )

    def scores(self, site: Site, backbone: str, retriever: str) -> Floats:
        """(readouts, candidates of all queries): s, by every readout that may score this corpus."""

        def make() -> Floats:
            states = self.lab.states(site, backbone, retriever).states
            vectors = self.readouts(backbone).vectors
            which = list(readouts_for(site.family, site.number, len(vectors)))
            made: Floats = vectors[which] @ states.reshape(-1, states.shape[-1]).astype(np.float64).T
            return made

        return self.once(("scores", site, backbone, retriever), make)

    def lines(self, family: int, retriever: str) -> list[Line]:
        """Every arm, in the order of the paper's tables."""
        return self.once(("lines", family, retriever), lambda: self._lines(family, retriever))

    def line(self, family: int, retriever: str, key: str) -> Line:
        """One arm."""
        [found] = [line for line in self.lines(family, retriever) if line.key == key]
        return found

    def ours(self, family: int, retriever: str, backbone: str) -> list[list[Floats]]:
        """Readout by readout, corpus by corpus: s."""
        by_corpus = [self.scores(site, backbone, retriever) for site in self.lab.sites(family)]
        return [[scores[number] for scores in by_corpus] for number in range(len(by_corpus[0]))]

    def _scored(self, site: Site, retriever: str, backbone: str | None) -> Scored:
        lab, corpus, count = self.lab, self.lab.corpus(site), self.settings.candidates
        pools = lab.pools(site, retriever)
        ids, scores = pools.page_ids[:, :count], pools.scores[:, :count]
        margins = lab.margins(site, backbone or self.settings.backbones[0], retriever)
        names = self.references(site)
        states, lens = np.empty((ids.size, 0)), np.zeros(ids.size)
        if backbone is not None:
            made = lab.states(site, backbone, retriever)
            states = made.states.reshape(ids.size, -1).astype(np.float64)
            lens = made.lens.ravel()
        return Scored(
            corpus=corpus.name,
            queries=tuple(query.query_id for query in corpus.queries),
            pages=tuple(names[page_id] for page_id in ids.ravel().tolist()),
            lists=Ragged.of_lengths([ids.shape[1]] * len(ids)),
            retriever=scores.ravel(),
            margins=margins.ravel(),
            states=states,
            lens=lens,
            qrels=corpus.qrels,
        )

    def _lines(self, family: int, retriever: str) -> list[Line]:
        sites = self.lab.sites(family)
        corpora = [self.scored(site, retriever) for site in sites]
        retrieval = float(
            np.mean(np.concatenate([self.lab.pools(site, retriever).retrieval_ms for site in sites]))
        )
        margins = [scored.margins for scored in corpora]
        full = Latency(retrieval, 0.0, self._full_pass_ms(family))
        lines = [
            Line(
                "retriever",
                "No reranking",
                tuple(Outcome(scored.evaluate(scored.retriever).values, np.nan) for scored in corpora),
                Latency(retrieval, 0.0, 0.0),
            ),
            Line(
                "cross encoder",
                "Full cross encoder",
                _fused(corpora, margins, cyclic_weights(corpora, margins)),
                full,
            ),
            Line(
                "cross encoder alone",
                "Full cross encoder, w = 1",
                tuple(
                    Outcome(scored.evaluate(own).values, 1.0)
                    for scored, own in zip(corpora, margins, strict=True)
                ),
                full,
            ),
            *self._other_lines(family, retriever, corpora, retrieval),
        ]
        for backbone in self.settings.backbones:
            made = [self.lab.states(site, backbone, retriever) for site in sites]
            reading = float(np.mean(np.concatenate([own.reading_ms for own in made])))
            compute = float(np.mean(np.concatenate([own.compute_ms for own in made])))
            by_readout = [
                _fused(corpora, scores, cyclic_weights(corpora, scores))
                for scores in self.ours(family, retriever, backbone)
            ]
            outcomes = tuple(
                Outcome(
                    np.mean([one.values for one in own], axis=0), float(np.mean([one.weight for one in own]))
                )
                for own in zip(*by_readout, strict=True)
            )
            latency = Latency(retrieval, reading, compute)
            lines.append(Line(f"ours {backbone}", f"RidgeRank ({backbone})", outcomes, latency))
        return lines

    def _other_lines(
        self, family: int, retriever: str, corpora: list[Scored], retrieval: float
    ) -> list[Line]:
        """RRF, Score Aggregation, GQR, text and image reranker: what each is, and how it is fused."""
        asked: list[tuple[str, Role, Fusion | None]] = [
            ("RRF", "text retriever", by_rank),
            ("Score Aggregation", "text retriever", by_aggregation),
            ("GQR", "GQR", None),
            ("text reranker", "text reranker", by_standard_score),
            ("image reranker", "image reranker", by_standard_score),
        ]
        lines = []
        for key, role, fusion in asked:
            if role not in roles_behind(self.settings, retriever):
                continue
            found = [self.lab.arm(site, retriever, role) for site in self.lab.sites(family)]
            name = NAMES[self.settings.arms][role]
            shown = f"{key} with {name}" if role == "text retriever" else name
            missing = next((own for own in found if isinstance(own, Unavailable)), None)
            if missing is not None:
                lines.append(Line(key, shown, (), None, why=missing.why))
                continue
            scores = [own.scores.ravel() for own in found if not isinstance(own, Unavailable)]
            own_ms = self._arm_ms(family, retriever, role)
            # GQR searches by itself: its own time holds a retrieval.
            compute = max(own_ms - retrieval, 0.0) if key == "GQR" else own_ms
            outcomes = (
                self._found(family, retriever, role) if fusion is None else _picked(corpora, scores, fusion)
            )
            lines.append(Line(key, shown, outcomes, Latency(retrieval, 0.0, compute)))
        return lines

    def _found(self, family: int, retriever: str, role: Role) -> tuple[Outcome, ...]:
        """An arm that finds pages by itself, ranked by its own scores."""
        outcomes = []
        for site in self.lab.sites(family):
            arm, corpus = self.lab.arm(site, retriever, role), self.lab.corpus(site)
            assert not isinstance(arm, Unavailable)
            names = self.references(site)
            rows, places = np.nonzero(np.isfinite(arm.scores))
            run = Run.of_columns(
                [corpus.queries[row].query_id for row in rows.tolist()],
                [names[page_id] for page_id in arm.page_ids[rows, places].tolist()],
                arm.scores[rows, places].tolist(),
            )
            outcomes.append(Outcome(evaluate(run, corpus.qrels).values, np.nan))
        return tuple(outcomes)

    def _arm_ms(self, family: int, retriever: str, role: Role) -> float:
        """The arm's own time; one timed behind the first retriever only reads as many pages behind others."""
        for behind in (retriever, self.settings.retrievers[0]):
            found = [self.lab.arm(site, behind, role) for site in self.lab.sites(family)]
            times = np.concatenate([own.latency_ms for own in found if not isinstance(own, Unavailable)])
            if not np.isnan(times).all():
                return float(np.nanmean(times))
        return float("nan")

    def _full_pass_ms(self, family: int) -> float:
        """Of the first backbone over the first retriever's candidates; the others' are as many pages."""
        first, by = self.settings.backbones[0], self.settings.retrievers[0]
        times = [self.lab.states(site, first, by).full_ms for site in self.lab.sites(family)]
        return float(np.nanmean(np.concatenate(times)))


def _fused(corpora: list[Scored], scores: list[Floats], weights: list[float]) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(scored.evaluate(fuse(scored.retriever, own, weight, scored.lists)).values, weight)
        for scored, own, weight in zip(corpora, scores, weights, strict=True)
    )


def _picked(corpora: list[Scored], scores: list[Floats], fusion: Fusion) -> tuple[Outcome, ...]:
    """Each corpus at the weight that is best on the next one."""
    weights = [picked_weight(fusion, scored, own) for scored, own in zip(corpora, scores, strict=True)]
    outcomes = []
    for number, (scored, own) in enumerate(zip(corpora, scores, strict=True)):
        weight = next_in_cycle(weights, number)
        fused = fusion(scored.retriever, own, weight, scored.lists)
        outcomes.append(Outcome(scored.evaluate(fused).values, weight))
    return tuple(outcomes)
