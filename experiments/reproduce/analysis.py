"""What tables and figures are computed from: stages read, readouts fitted, methods evaluated; each once.

Judgements are read here and nowhere below. Arrays of a corpus are kept while they are small (scores); states
are read, used and released.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from experiments.baselines.base import Unavailable
from experiments.baselines.fusion import fuse_by_min_max, fuse_by_rank
from experiments.baselines.load import NAMES, BaselineRole
from experiments.protocols import (
    FoldReadouts,
    Fusion,
    ScoredCorpus,
    best_weight,
    cyclic_weights,
    fit_fold_readouts,
    readouts_for,
)
from experiments.reproduce.experiment import CorpusKey, Experiment, calibration_sample
from experiments.reproduce.method_results import (
    CorpusResult,
    MethodResult,
    choose_refinements,
    describe_refinements,
    evaluate_fused,
    evaluate_refinements,
    evaluate_scores,
    mean_over_readouts,
    measure_latency,
    refined_run,
)
from experiments.reproduce.prepare import roles_behind
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats, Ragged

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

    def full_depth(self, family: int, retriever: str, backbone: str) -> MethodResult:
        """A backbone's own full cross encoder, fused at its w*; the first one's is the reference."""
        if backbone == self.settings.backbones[0]:
            return self.result(family, retriever, "cross encoder")

        def evaluate_margins() -> MethodResult:
            corpus_keys = self.experiment.corpus_keys(family)
            corpora = [self.scored(corpus_key, retriever) for corpus_key in corpus_keys]
            margins = [self.experiment.margins(each, backbone, retriever).ravel() for each in corpus_keys]
            by_corpus = evaluate_fused(corpora, margins, cyclic_weights(corpora, margins))
            name = f"Full cross encoder of {backbone}"
            return MethodResult(f"cross encoder {backbone}", name, by_corpus, None)

        return self.cached(("full depth", family, retriever, backbone), evaluate_margins)

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
        retrieval_ms = np.concatenate([pool.retrieval_ms for pool in pools])
        margins = [scored.margins for scored in corpora]
        full = measure_latency(retrieval_ms, self._full_pass_ms(family))
        return [
            MethodResult(
                "retriever",
                "No reranking",
                tuple(evaluate_scores(scored, scored.retriever, np.nan) for scored in corpora),
                measure_latency(retrieval_ms, np.zeros_like(retrieval_ms)),
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
                tuple(evaluate_scores(scored, scored.margins, 1.0) for scored in corpora),
                full,
            ),
            *self._baseline_results(family, retriever, corpora, retrieval_ms),
            *(
                self._ridgerank_result(family, retriever, backbone, corpora, retrieval_ms)
                for backbone in self.settings.backbones
            ),
        ]

    def _ridgerank_result(
        self, family: int, retriever: str, backbone: str, corpora: list[ScoredCorpus], retrieval_ms: Floats
    ) -> MethodResult:
        states = [
            self.experiment.states(corpus_key, backbone, retriever)
            for corpus_key in self.experiment.corpus_keys(family)
        ]
        latency = measure_latency(
            retrieval_ms,
            np.concatenate([of_corpus.compute_ms for of_corpus in states]),
            np.concatenate([of_corpus.reading_ms for of_corpus in states]),
        )
        by_readout = [
            evaluate_fused(corpora, scores, cyclic_weights(corpora, scores))
            for scores in self.scores_by_readout(family, retriever, backbone)
        ]
        return MethodResult(
            f"ours {backbone}", f"RidgeRank ({backbone})", mean_over_readouts(by_readout), latency
        )

    def _baseline_results(
        self, family: int, retriever: str, corpora: list[ScoredCorpus], retrieval_ms: Floats
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
            if fusion is None:
                results.append(self._refined_result(family, retriever, label, retrieval_ms))
                continue
            scores = [each.scores.ravel() for each in scored if not isinstance(each, Unavailable)]
            weights = cyclic_weights(corpora, scores, best_weight(fusion))
            by_corpus = evaluate_fused(corpora, scores, weights, fusion)
            latency = measure_latency(retrieval_ms, self._baseline_ms(family, retriever, role))
            results.append(MethodResult(key, label, by_corpus, latency))
        return results

    def _refined_result(self, family: int, retriever: str, name: str, retrieval_ms: Floats) -> MethodResult:
        """GQR, which finds pages by itself, each corpus at the setting that is best on the next one."""
        by_setting, times, run_of = [], [], []
        for corpus_key in self.experiment.corpus_keys(family):
            baseline = self.experiment.baseline_scores(corpus_key, retriever, "GQR")
            assert not isinstance(baseline, Unavailable)
            corpus, names = self.experiment.corpus(corpus_key), self.references(corpus_key)
            run_of.append(partial(refined_run, baseline, corpus, names))
            by_setting.append(evaluate_refinements(run_of[-1], corpus))
            times.append(baseline.latency_ms)
        chosen = choose_refinements(by_setting)
        compute = np.concatenate([each[:, setting] for each, setting in zip(times, chosen, strict=True)])
        # Its time includes a retrieval.
        compute = np.maximum(compute - retrieval_ms, 0.0)
        results = tuple(
            CorpusResult(values[setting], np.nan, (run(setting),))
            for values, run, setting in zip(by_setting, run_of, chosen, strict=True)
        )
        latency = measure_latency(retrieval_ms, compute)
        remark = describe_refinements(self.corpora(family), chosen)
        return MethodResult("GQR", name, results, latency, remark=remark)

    def _baseline_ms(self, family: int, retriever: str, role: BaselineRole) -> Floats:
        """The baseline's times; where it was not timed, those behind the first retriever: as many pages."""
        for behind in (retriever, self.settings.retrievers[0]):
            scored = [
                self.experiment.baseline_scores(corpus_key, behind, role)
                for corpus_key in self.experiment.corpus_keys(family)
            ]
            times = [baseline.latency_ms for baseline in scored if not isinstance(baseline, Unavailable)]
            if not np.isnan(np.concatenate(times)).all():
                break
        return np.concatenate(times)

    def _full_pass_ms(self, family: int) -> Floats:
        """Of the first backbone over the first retriever's candidates; the others' are as many pages."""
        backbone, retriever = self.settings.backbones[0], self.settings.retrievers[0]
        times = [
            self.experiment.states(corpus_key, backbone, retriever).full_ms
            for corpus_key in self.experiment.corpus_keys(family)
        ]
        return np.concatenate(times)
