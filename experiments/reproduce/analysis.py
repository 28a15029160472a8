"""What tables and figures are computed from: stages read, readouts fitted, methods evaluated; each once.

Judgements are read here and nowhere below. Arrays of a corpus are kept while they are small (scores); states
are read, used and released.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from experiments.baselines.base import Unavailable
from experiments.baselines.hybrid import fuse_by_min_max, fuse_by_rank
from experiments.baselines.load import NAMES, BaselineRole
from experiments.protocols.cyclic_weights import Fusion, best_weight, cyclic_weights
from experiments.protocols.leave_one_out import FoldReadouts, fit_fold_readouts, readouts_for
from experiments.protocols.scored_corpus import ScoredCorpus
from experiments.reproduce.corpus_key import CorpusKey
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.method_results import (
    CorpusResult,
    MethodLatency,
    MethodResult,
    evaluate_fused,
    mean_over_readouts,
)
from experiments.reproduce.prepare import roles_behind
from experiments.reproduce.sample import calibration_sample
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats, Ragged
from ridgerank.runs.run import Run

Value = TypeVar("Value")


class Analysis:
    """The results of an experiment, combined by the protocols of the paper."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.settings = experiment.settings
        self.sample = calibration_sample(experiment)
        self._cache: dict[Hashable, Any] = {}

    def cached(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Compute a value when it is first requested, and keep it."""
        if key not in self._cache:
            self._cache[key] = compute()
        value: Value = self._cache[key]
        return value

    def corpora(self, family: int) -> list[str]:
        """Names, in cyclic order."""
        return [self.experiment.corpus(corpus_key).name for corpus_key in self.experiment.corpus_keys(family)]

    def scored(self, corpus_key: CorpusKey, retriever: str, backbone: str | None = None) -> ScoredCorpus:
        """A corpus with its scores: with states and margins of `backbone`, or the first's margins alone."""
        if backbone is None:
            return self.cached(
                ("scored", corpus_key, retriever), lambda: self._scored(corpus_key, retriever, None)
            )
        return self._scored(corpus_key, retriever, backbone)

    def references(self, corpus_key: CorpusKey) -> dict[str, str]:
        """Page id → the name judgements know it by."""
        return self.cached(("names", corpus_key), lambda: self.experiment.references(corpus_key))

    def readouts(self, backbone: str) -> FoldReadouts:
        """Fitted on the calibration sample behind the first retriever."""
        return self.cached(("readouts", backbone), lambda: fit_fold_readouts(self.samples(backbone)))

    def samples(self, backbone: str) -> list[ScoredCorpus]:
        """The calibration sample, corpus by corpus, with the states and margins of one backbone."""
        first = self.settings.retrievers[0]
        return self.cached(
            ("samples", backbone),
            lambda: [
                self.scored(corpus_key, first, backbone).take(self.sample[corpus_key.number])
                for corpus_key in self.experiment.corpus_keys(0)
            ],
        )

    def scores(self, corpus_key: CorpusKey, backbone: str, retriever: str) -> Floats:
        """(readouts, candidates of all queries): s, by every readout that may score this corpus."""

        def compute() -> Floats:
            states = self.experiment.states(corpus_key, backbone, retriever).states
            vectors = self.readouts(backbone).vectors
            which = list(readouts_for(corpus_key.family, corpus_key.number, len(vectors)))
            scores: Floats = vectors[which] @ states.reshape(-1, states.shape[-1]).astype(np.float64).T
            return scores

        return self.cached(("scores", corpus_key, backbone, retriever), compute)

    def results(self, family: int, retriever: str) -> list[MethodResult]:
        """Every method, in the order of the paper's tables."""
        return self.cached(("lines", family, retriever), lambda: self._results(family, retriever))

    def result(self, family: int, retriever: str, key: str) -> MethodResult:
        """One method."""
        [result] = [result for result in self.results(family, retriever) if result.key == key]
        return result

    def scores_by_readout(self, family: int, retriever: str, backbone: str) -> list[list[Floats]]:
        """Readout by readout, corpus by corpus: s."""
        by_corpus = [
            self.scores(corpus_key, backbone, retriever) for corpus_key in self.experiment.corpus_keys(family)
        ]
        return [[scores[number] for scores in by_corpus] for number in range(len(by_corpus[0]))]

    def _scored(self, corpus_key: CorpusKey, retriever: str, backbone: str | None) -> ScoredCorpus:
        experiment, corpus = self.experiment, self.experiment.corpus(corpus_key)
        count = self.settings.candidates
        pools = experiment.pools(corpus_key, retriever)
        ids, scores = pools.page_ids[:, :count], pools.scores[:, :count]
        margins = experiment.margins(corpus_key, backbone or self.settings.backbones[0], retriever)
        names = self.references(corpus_key)
        states, lens = np.empty((ids.size, 0)), np.zeros(ids.size)
        if backbone is not None:
            at_exit = experiment.states(corpus_key, backbone, retriever)
            states = at_exit.states.reshape(ids.size, -1).astype(np.float64)
            lens = at_exit.lens.ravel()
        return ScoredCorpus(
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

    def _results(self, family: int, retriever: str) -> list[MethodResult]:
        corpus_keys = self.experiment.corpus_keys(family)
        corpora = [self.scored(corpus_key, retriever) for corpus_key in corpus_keys]
        pools = [self.experiment.pools(corpus_key, retriever) for corpus_key in corpus_keys]
        retrieval_ms = float(np.mean(np.concatenate([pool.retrieval_ms for pool in pools])))
        margins = [scored.margins for scored in corpora]
        full = MethodLatency(retrieval_ms, 0.0, self._full_pass_ms(family))
        return [
            MethodResult(
                "retriever",
                "No reranking",
                tuple(CorpusResult(scored.evaluate(scored.retriever).values, np.nan) for scored in corpora),
                MethodLatency(retrieval_ms, 0.0, 0.0),
            ),
            MethodResult(
                "cross encoder",
                "Full cross encoder",
                evaluate_fused(corpora, margins, cyclic_weights(corpora, margins)),
                full,
            ),
            MethodResult(
                "cross encoder alone",
                "Full cross encoder, w = 1",
                tuple(CorpusResult(scored.evaluate(scored.margins).values, 1.0) for scored in corpora),
                full,
            ),
            *self._baseline_results(family, retriever, corpora, retrieval_ms),
            *(
                self._ridgerank_result(family, retriever, backbone, corpora, retrieval_ms)
                for backbone in self.settings.backbones
            ),
        ]

    def _ridgerank_result(
        self, family: int, retriever: str, backbone: str, corpora: list[ScoredCorpus], retrieval_ms: float
    ) -> MethodResult:
        states = [
            self.experiment.states(corpus_key, backbone, retriever)
            for corpus_key in self.experiment.corpus_keys(family)
        ]
        latency = MethodLatency(
            retrieval_ms,
            float(np.mean(np.concatenate([of_corpus.reading_ms for of_corpus in states]))),
            float(np.mean(np.concatenate([of_corpus.compute_ms for of_corpus in states]))),
        )
        by_readout = [
            evaluate_fused(corpora, scores, cyclic_weights(corpora, scores))
            for scores in self.scores_by_readout(family, retriever, backbone)
        ]
        return MethodResult(
            f"ours {backbone}", f"RidgeRank ({backbone})", mean_over_readouts(by_readout), latency
        )

    def _baseline_results(
        self, family: int, retriever: str, corpora: list[ScoredCorpus], retrieval_ms: float
    ) -> list[MethodResult]:
        """RRF, Score Aggregation, GQR, text and image reranker: the role of each, and how it is fused."""
        methods: list[tuple[str, BaselineRole, Fusion | None]] = [
            ("RRF", "text retriever", fuse_by_rank),
            ("Score Aggregation", "text retriever", fuse_by_min_max),
            ("GQR", "GQR", None),
            ("text reranker", "text reranker", fuse_scores),
            ("image reranker", "image reranker", fuse_scores),
        ]
        corpus_keys = self.experiment.corpus_keys(family)
        results = []
        for key, role, fusion in methods:
            if role not in roles_behind(self.settings, retriever):
                continue
            scored = [self.experiment.baseline_scores(each, retriever, role) for each in corpus_keys]
            name = NAMES[self.settings.baselines][role]
            label = f"{key} with {name}" if role == "text retriever" else name
            missing = next((baseline for baseline in scored if isinstance(baseline, Unavailable)), None)
            if missing is not None:
                results.append(MethodResult(key, label, (), None, why=missing.why))
                continue
            scores = [baseline.scores.ravel() for baseline in scored if not isinstance(baseline, Unavailable)]
            baseline_ms = self._baseline_ms(family, retriever, role)
            # GQR searches by itself: its time includes a retrieval.
            compute_ms = max(baseline_ms - retrieval_ms, 0.0) if key == "GQR" else baseline_ms
            by_corpus = (
                self._searched_results(family, retriever, role)
                if fusion is None
                else evaluate_fused(
                    corpora, scores, cyclic_weights(corpora, scores, best_weight(fusion)), fusion
                )
            )
            results.append(MethodResult(key, label, by_corpus, MethodLatency(retrieval_ms, 0.0, compute_ms)))
        return results

    def _searched_results(self, family: int, retriever: str, role: BaselineRole) -> tuple[CorpusResult, ...]:
        """A baseline that finds pages by itself, ranked by its scores."""
        results = []
        for corpus_key in self.experiment.corpus_keys(family):
            baseline = self.experiment.baseline_scores(corpus_key, retriever, role)
            corpus = self.experiment.corpus(corpus_key)
            assert not isinstance(baseline, Unavailable)
            names = self.references(corpus_key)
            rows, columns = np.nonzero(np.isfinite(baseline.scores))
            run = Run.of_columns(
                [corpus.queries[row].query_id for row in rows.tolist()],
                [names[page_id] for page_id in baseline.page_ids[rows, columns].tolist()],
                baseline.scores[rows, columns].tolist(),
            )
            results.append(CorpusResult(evaluate(run, corpus.qrels).values, np.nan))
        return tuple(results)

    def _baseline_ms(self, family: int, retriever: str, role: BaselineRole) -> float:
        """The baseline's time; where it was not timed, its time behind the first retriever: as many pages."""
        for behind in (retriever, self.settings.retrievers[0]):
            scored = [
                self.experiment.baseline_scores(corpus_key, behind, role)
                for corpus_key in self.experiment.corpus_keys(family)
            ]
            times = [baseline.latency_ms for baseline in scored if not isinstance(baseline, Unavailable)]
            if not np.isnan(np.concatenate(times)).all():
                return float(np.nanmean(np.concatenate(times)))
        return float("nan")

    def _full_pass_ms(self, family: int) -> float:
        """Of the first backbone over the first retriever's candidates; the others' are as many pages."""
        backbone, retriever = self.settings.backbones[0], self.settings.retrievers[0]
        times = [
            self.experiment.states(corpus_key, backbone, retriever).full_ms
            for corpus_key in self.experiment.corpus_keys(family)
        ]
        return float(np.nanmean(np.concatenate(times)))
