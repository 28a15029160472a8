"""The stages joined: a result comes from disk, or is computed and kept.

`Experiment` knows which model made what, and loads one only where something is missing. Request results model
by model (as `prepare` does) and each model is loaded once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import (
    CorpusPaths,
    StageProgress,
    compute_in_parts,
    read_folder_lineage,
    slug,
)
from experiments.reproduce.stages.model_cache import ModelCache
from experiments.reproduce.stages.retrieval import (
    CachedEmbedder,
    CandidatePools,
    InMemoryLateInteraction,
    PageVectors,
    embed_pages,
    find_pools,
    list_corpus_pages,
    queries_digest,
)
from experiments.reproduce.stages.states import CandidateStates, run_deeper, run_layers, run_states
from ridgerank.atomic import replace_text_file
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.teacher import TargetCache, complete_targets
from ridgerank.documents.ocr import Recognizer
from ridgerank.indexing.index import IndexProgress, ProgressCallback, index_documents
from ridgerank.lineage import Keep
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore
from ridgerank.store.vector_columns import PageEmbedder, VectorOrigin

if TYPE_CHECKING:
    from experiments.baselines.base import Baseline, Unavailable
    from experiments.baselines.load import BaselineRole
    from experiments.reproduce.stages.baseline_scores import BaselineScores
    from ridgerank.retrievers.base import Retriever
    from ridgerank.scoring.shallow import ShallowPass


@dataclass(frozen=True, slots=True, repr=False)
class CorpusKey:
    """A corpus of a run."""

    family: int
    number: int
    """Position in the cycle of the family."""

    def __repr__(self) -> str:
        # Markers in the work folder are named by digests of this text: changing it would discard them.
        return f"Site(family={self.family}, number={self.number})"


class Experiment:
    """Everything that is measured in one run, by corpus, retriever and backbone."""

    def __init__(self, settings: ExperimentSettings, work: Path, progress: StageProgress) -> None:
        self.settings = settings
        self.progress = progress
        self.models = ModelCache(settings, work)
        self.work = work
        """Where all stages are kept."""

    def corpus_keys(self, family: int | None = None) -> list[CorpusKey]:
        """All corpora, or those of one family, in their cyclic order."""
        families = self.settings.families
        return [
            CorpusKey(family_number, position)
            for family_number, benchmark in enumerate(families)
            if family is None or family == family_number
            for position in range(len(benchmark.corpora))
        ]

    def corpus(self, corpus_key: CorpusKey) -> BenchmarkCorpus:
        """The corpus itself."""
        return self.settings.families[corpus_key.family].corpora[corpus_key.number]

    def paths(self, corpus_key: CorpusKey) -> CorpusPaths:
        """Its folders."""
        return CorpusPaths(
            self.work, self.settings.families[corpus_key.family].name, self.corpus(corpus_key).name
        )

    def pools(self, corpus_key: CorpusKey, retriever: str) -> CandidatePools:
        """The candidates of every query."""
        folder, corpus = self.paths(corpus_key).retriever(retriever), self.corpus(corpus_key)
        self.progress.start(f"{corpus.name}: candidates by {slug(retriever)}", len(corpus.queries))
        loaded: list[Retriever] = []

        def load() -> "Retriever":
            if not loaded:
                pages = self.vectors(corpus_key, retriever)
                encoder = self.models.encoder_for(folder, retriever)
                ends = np.cumsum(pages.lengths)[:-1]
                loaded.append(InMemoryLateInteraction(encoder, pages.page_ids, np.split(pages.vectors, ends)))
                self.progress.start(f"{corpus.name}: candidates by {slug(retriever)}", len(corpus.queries))
            return loaded[0]

        return find_pools(folder, corpus, load, depth=self.settings.deepest, done=self.progress.advance)

    def references(self, corpus_key: CorpusKey) -> dict[str, str]:
        """Page id → the name judgements know it by."""
        return {ref.page_id: ref.reference for ref in list_corpus_pages(self.corpus(corpus_key))}

    def vectors(self, corpus_key: CorpusKey, retriever: str) -> PageVectors:
        """The pages, embedded."""
        folder, corpus = self.paths(corpus_key).retriever(retriever), self.corpus(corpus_key)
        refs = list_corpus_pages(corpus)
        self.progress.start(f"{corpus.name}: pages embedded by {slug(retriever)}", len(refs))
        return embed_pages(
            folder,
            refs,
            lambda: self.models.encoder_for(folder, retriever),
            max_pixels=self.models.max_pixels,
            done=self.progress.advance,
            say=self.progress.echo,
        )

    def margins(self, corpus_key: CorpusKey, backbone: str, retriever: str) -> Floats:
        """(queries, candidates): t, the full-depth margin."""
        folder, corpus = self.paths(corpus_key).backbone(backbone), self.corpus(corpus_key)
        kept = compute_in_parts(
            folder / f"margins-{slug(retriever)}" / self._pool_name(corpus),
            1,
            1,
            lambda _: {"margins": self._gather_margins(corpus_key, backbone, retriever)[None]},
        )
        return np.asarray(kept["margins"][0])

    def states(self, corpus_key: CorpusKey, backbone: str, retriever: str) -> CandidateStates:
        """The states at the exit layer, and the time it takes to compute them."""
        folder, corpus = self.paths(corpus_key).backbone(backbone), self.corpus(corpus_key)
        pools = self.pools(corpus_key, retriever)
        timed = (backbone, retriever) == (self.settings.backbones[0], self.settings.retrievers[0])
        with self.open_shallow(corpus_key, backbone) as shallow:
            self.progress.start(
                f"{corpus.name}: {slug(backbone)} behind {slug(retriever)}", len(corpus.queries)
            )
            return run_states(
                folder / f"states-{slug(retriever)}",
                corpus,
                pools,
                shallow,
                candidates=self.settings.candidates,
                full_pass_every=self.settings.full_pass_every if timed else None,
                done=self.progress.advance,
            )

    def deeper(self, corpus_key: CorpusKey, backbone: str, retriever: str) -> NDArray[np.float32]:
        """(queries, pages, dim): states of the candidates below those of `states`."""
        folder, corpus = self.paths(corpus_key).backbone(backbone), self.corpus(corpus_key)
        pools = self.pools(corpus_key, retriever)
        with self.open_shallow(corpus_key, backbone) as shallow:
            self.progress.start(
                f"{corpus.name}: {slug(backbone)} behind {slug(retriever)}, deeper", len(corpus.queries)
            )
            return run_deeper(
                folder / f"deeper-{slug(retriever)}",
                corpus,
                pools,
                shallow,
                depths=(self.settings.candidates, self.settings.deepest),
                done=self.progress.advance,
            )

    def layers(self, corpus_key: CorpusKey, backbone: str, queries: Sequence[int]) -> NDArray[np.float32]:
        """(queries, candidates, layers, dim): states of some queries at every layer, first retriever."""
        folder, corpus = self.paths(corpus_key).backbone(backbone), self.corpus(corpus_key)
        pools = self.pools(corpus_key, self.settings.retrievers[0])
        page_ids = pools.page_ids[list(queries), : self.settings.candidates]
        self.progress.start(f"{corpus.name}: {slug(backbone)} at every layer", len(np.unique(page_ids)))
        self._require_store(corpus_key, backbone)
        return run_layers(
            folder / "layers",
            self.paths(corpus_key).store(backbone),
            [corpus.queries[number].text for number in queries],
            page_ids,
            lambda: self.models.backbone_for(folder, backbone),
            self.settings.keep,
            done=self.progress.advance,
        )

    def baseline_scores(
        self, corpus_key: CorpusKey, retriever: str, role: "BaselineRole", *, candidates: int | None = None
    ) -> "BaselineScores | Unavailable":
        """The scores of a baseline, or why there are none."""
        from experiments.baselines.load import STAND_IN_BACKBONE, load_baselines
        from experiments.reproduce.stages.baseline_scores import run_baseline

        corpus, settings = self.corpus(corpus_key), self.settings
        first = settings.backbones[0]
        # Where the stand-in is among the backbones, its margins are computed for its readout anyway.
        shared = STAND_IN_BACKBONE if STAND_IN_BACKBONE in settings.backbones else None
        pools = self.pools(corpus_key, retriever)
        self.progress.start(f"{corpus.name}: {role} behind {slug(retriever)}", len(corpus.queries))
        opened: list[PageStore] = []

        def load(work: Path) -> "Baseline | Unavailable":
            from ridgerank.store.page_store import PageStore

            if not opened:
                self._require_store(corpus_key, first)
                opened.append(PageStore.open(self.paths(corpus_key).store(first)))
            return load_baselines(self.models.baselines, opened[0], work=work, roles=(role,))[role]

        try:
            return run_baseline(
                self.paths(corpus_key).folder / f"arm-{self._score_name(role)}-{slug(retriever)}",
                corpus,
                pools,
                load,
                self.paths(corpus_key).backbone(shared) if shared else self.paths(corpus_key).folder / "arms",
                candidates=candidates or settings.candidates,
                full_pass_every=settings.full_pass_every if retriever == settings.retrievers[0] else None,
                done=self.progress.advance,
            )
        finally:
            for store in opened:
                store.close()

    def _score_name(self, role: "BaselineRole") -> str:
        """A baseline and the kind of its scores, so that a folder with scores of another kind is not read."""
        if role == "GQR":
            return "gqr-grid"
        trained = role in ("text reranker", "image reranker") and self.settings.baselines == "published"
        return f"{slug(role)}-probability" if trained else slug(role)

    def _gather_margins(self, corpus_key: CorpusKey, backbone: str, retriever: str) -> Floats:
        self._require_store(corpus_key, backbone)
        corpus = self.corpus(corpus_key)
        cache = self.models.margin_cache(self.paths(corpus_key).backbone(backbone), backbone)
        pools = self.pools(corpus_key, retriever)
        return gather_margins(corpus, pools, cache, candidates=self.settings.candidates)

    def _require_store(self, corpus_key: CorpusKey, backbone: str) -> None:
        """Index the corpus and compute all margins, unless that has been done for these pools."""
        folder, corpus = self.paths(corpus_key).backbone(backbone), self.corpus(corpus_key)
        names = [slug(name) for name in self.settings.retrievers]
        marker = folder / f"taught-{self._pool_name(corpus)}-{'-'.join(names)}"
        if marker.exists():
            return
        pools = [self.pools(corpus_key, name) for name in self.settings.retrievers]
        model = self.models.backbone_for(folder, backbone)
        embedder = recognizer = None
        if backbone == self.settings.backbones[0]:
            # Baselines read this store: it has the first retriever's vectors, and text.
            recognizer = self.models.recognizer if self.settings.ocr else None
            embedder = self._embedder(corpus_key, self.settings.retrievers[0])
        build_store(
            self.paths(corpus_key).store(backbone),
            corpus,
            model,
            self.models.margin_cache(folder, backbone),
            pools,
            candidates=self.settings.candidates,
            keep=self.settings.keep,
            embedder=embedder,
            recognizer=recognizer,
            progress=self.progress,
        )
        with replace_text_file(marker):
            pass

    def _embedder(self, corpus_key: CorpusKey, retriever: str) -> CachedEmbedder:
        """The retriever's page vectors, as indexing takes them."""
        folder = self.paths(corpus_key).retriever(retriever)
        return CachedEmbedder(
            VectorOrigin.from_json(read_folder_lineage(folder)),
            lambda: self.models.encoder_for(folder, retriever),
            self.vectors(corpus_key, retriever),
        )

    def _pool_name(self, corpus: BenchmarkCorpus) -> str:
        return f"{queries_digest(corpus)}-{self.settings.candidates}"

    @contextmanager
    def open_shallow(self, corpus_key: CorpusKey, backbone: str) -> Iterator[Callable[[], "ShallowPass"]]:
        """The model over its store, opened when it is first called for.

        Pages are read at every request, as on a machine whose pages do not fit in memory.
        """
        opened: list[ShallowPass] = []

        def open_once() -> "ShallowPass":
            from ridgerank.scoring.shallow import ShallowPass
            from ridgerank.store.page_store import PageStore

            if not opened:
                self._require_store(corpus_key, backbone)
                model = self.models.backbone_for(self.paths(corpus_key).backbone(backbone), backbone)
                store = PageStore.open(self.paths(corpus_key).store(backbone))
                opened.append(ShallowPass(model, store, cache_bytes=0))
            return opened[0]

        try:
            yield open_once
        finally:
            for shallow in opened:
                shallow.store.close()


def even_shares(total: int, available: list[int]) -> list[int]:
    """How many queries of each corpus: even shares, what one corpus lacks goes to those that have more."""
    shares = [0] * len(available)
    left = min(total, sum(available))
    while left:
        not_full = [number for number, most in enumerate(available) if shares[number] < most]
        for number in not_full[:left]:
            shares[number] += 1
        left = min(total, sum(available)) - sum(shares)
    return shares


def calibration_sample(experiment: Experiment) -> list[list[int]]:
    """For each corpus of the first family, the numbers of its queries drawn, ascending."""
    settings = experiment.settings
    counts = [len(experiment.corpus(corpus_key).queries) for corpus_key in experiment.corpus_keys(0)]
    generator = np.random.default_rng(settings.seed)
    return [
        sorted(generator.choice(count, size=share, replace=False).tolist())
        for count, share in zip(counts, even_shares(settings.calibration_queries, counts), strict=True)
    ]


def build_store(
    uri: str,
    corpus: BenchmarkCorpus,
    backbone: Backbone,
    margins: TargetCache,
    pools: Sequence[CandidatePools],
    *,
    candidates: int,
    keep: Keep,
    embedder: PageEmbedder | None,
    recognizer: Recognizer | None,
    progress: StageProgress,
) -> None:
    """Index a corpus and compute the margin of every candidate; either continues where it was interrupted."""
    indexed = Path(uri).with_name("indexed")
    if not indexed.exists():
        index_documents(
            corpus.documents,
            uri,
            backbone,
            progress=_count_pages(progress, f"{corpus.name}: pages into {Path(uri).parent.name}"),
            keep=keep,
            preset="paper",
            processes=0,  # a process takes long to start
            embedder=embedder,
            recognizer=recognizer,
        )
        indexed.touch()
    counted = 0

    def advance(done: int, total: int) -> None:
        nonlocal counted
        if done == 0 < total:
            progress.start(f"{corpus.name}: margins", total)
        progress.advance(done - counted)
        counted = done

    with PageStore.open(uri) as store:
        wanted = candidates_by_query(corpus, pools, candidates)
        complete_targets(backbone, store, margins, wanted, progress=advance)


def candidates_by_query(
    corpus: BenchmarkCorpus, pools: Sequence[CandidatePools], candidates: int
) -> dict[str, list[Candidate]]:
    """Query text → all pages some retriever returned for it."""
    by_text: dict[str, dict[str, Candidate]] = {}
    for pool in pools:
        for number, query in enumerate(corpus.queries):
            by_text.setdefault(query.text, {}).update((c.page_id, c) for c in pool.of(number, candidates))
    return {text: list(pages.values()) for text, pages in by_text.items()}


def gather_margins(
    corpus: BenchmarkCorpus, pools: CandidatePools, margins: TargetCache, *, candidates: int
) -> Floats:
    """(queries, candidates): the margins of one retriever's candidates."""
    rows = [
        [margins.target("margin", query.text, page_id) for page_id in page_ids]
        for query, page_ids in zip(corpus.queries, pools.page_ids[:, :candidates].tolist(), strict=True)
    ]
    return np.array(rows, dtype=np.float64)


def _count_pages(progress: StageProgress, what: str) -> ProgressCallback:
    """Count pages on the progress bar of the run."""
    counted: int | None = None

    def show(state: IndexProgress) -> None:
        nonlocal counted
        if state.failure is not None:
            progress.echo(f"left out: {state.failure}")
            return
        if counted is None:
            progress.start(what, state.total)
            counted = 0
        progress.advance(state.done - counted)
        counted = state.done

    return show
