"""What is run, and how: the settings of §4. Everything else is derived."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.datasets.base import Benchmark, BenchmarkCorpus
from experiments.datasets.load import load_benchmark
from miniature import BACKBONES, RETRIEVERS
from ridgerank.lineage import Keep

if TYPE_CHECKING:
    from experiments.baselines.load import BaselineKind


QUERIES = 5
"""Of a corpus: the first of the queries that the document kept answers."""


def cut_benchmark(benchmark: Benchmark, corpora: int) -> Benchmark:
    """The first corpora, of one document each, with queries that it answers."""
    return replace(benchmark, corpora=tuple(_cut_corpus(corpus) for corpus in benchmark.corpora[:corpora]))


def _cut_corpus(corpus: BenchmarkCorpus) -> BenchmarkCorpus:
    """The smallest document that answers enough queries, and its judgements."""
    files = sorted(path for location in corpus.documents for path in _files(location))
    judged = {path: _judged(corpus, path.name) for path in files}
    kept = min(files, key=lambda path: (-min(len(judged[path]), QUERIES), path.stat().st_size, path))
    queries = tuple(query for query in corpus.queries if query.query_id in judged[kept])[:QUERIES]
    qrels = {query.query_id: judged[kept][query.query_id] for query in queries}
    return replace(corpus, documents=(kept,), queries=queries, qrels=qrels)


def _files(location: Path) -> list[Path]:
    return [path for path in location.rglob("*") if path.is_file()] if location.is_dir() else [location]


def _judged(corpus: BenchmarkCorpus, name: str) -> dict[str, dict[str, int]]:
    """Query id → pages of one document that answer it → grade."""
    answered = {
        query_id: {
            page: grade for page, grade in grades.items() if grade > 0 and page.rpartition("#")[0] == name
        }
        for query_id, grades in corpus.qrels.items()
    }
    return {query_id: pages for query_id, pages in answered.items() if pages}


DEPTHS = (5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
"""Pools of the paper's study of depth (§B.5)."""

PUBLISHED_BACKBONES = ("qwen2.5-vl-7b", "glm-4.1v-9b")
PUBLISHED_RETRIEVERS = ("colnomic-7b", "colpali-v1.3")
"""The paper's models, which ViDoRe is run with."""
QUICK_CORPORA = ("alder", "birch", "cedar", "elder", "fir")
"""What a small run of the miniature draws: three corpora of the first family, two of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """One run of the experiments."""

    families: tuple[Benchmark, ...]
    """The first calibrates, leaving one corpus out; the others are evaluated with all its readouts."""
    backbones: tuple[str, ...]
    """The first is also the full cross encoder all are compared with, and the third score of §B.6."""
    retrievers: tuple[str, ...]
    """Late interaction models; readouts are fitted on the candidates of the first."""
    baselines: "BaselineKind" = "published"
    """Published checkpoints as baselines, or the miniature's stand-ins."""
    ocr: bool = False
    """Recognize the text of pages without a text layer, for the baselines that read text."""
    device: str | None = None
    candidates: int = 20
    keep: Keep = field(default_factory=Keep)
    calibration_queries: int = 154
    """Spread evenly over the corpora of the first family."""
    sample_weight: float = 0.85
    """w on the calibration sample, where the paper fixes it (§4.4, §B.3, §B.4)."""
    depths: tuple[int, ...] = DEPTHS
    draws: int = 5
    """How often few calibration queries are drawn, for table 9 and the figure on calibration queries."""
    splits: int = 200
    full_pass_every: int = 10
    """Every N-th query is also timed by full passes; 1 times all of them, as the paper does."""
    seed: int = 0

    @property
    def deepest(self) -> int:
        """Candidates kept of every query."""
        return max((self.candidates, *self.depths))


def shrink_settings(settings: ExperimentSettings) -> ExperimentSettings:
    """The settings of a run that takes seconds: it shows that everything runs, and nothing about quality."""
    return replace(
        settings,
        families=tuple(
            cut_benchmark(family, 2 if number else 3) for number, family in enumerate(settings.families)
        ),
        backbones=settings.backbones[:1],
        retrievers=settings.retrievers[:1],
        candidates=6,
        depths=(5, 8),
        calibration_queries=15,
        splits=5,
        draws=2,
        full_pass_every=5,
    )


def make_settings(
    benchmark: str,
    work: Path,
    *,
    backbones: Sequence[str] = (),
    retrievers: Sequence[str] = (),
    local: Path | None = None,
    languages: Sequence[str] | None = None,
    candidates: int = 20,
    full_pass_every: int = 10,
    device: str | None = None,
    ocr: bool = False,
    quick: bool = False,
    draws: int | None = None,
) -> ExperimentSettings:
    """Load a benchmark by name and choose the models for it, unless they are named."""
    corpora = QUICK_CORPORA if quick and benchmark == "miniature" else None
    families = load_benchmark(benchmark, work / "corpora", languages=languages, local=local, corpora=corpora)
    published = benchmark.startswith("vidore")
    backbones = backbones or (PUBLISHED_BACKBONES if published else BACKBONES)
    retrievers = retrievers or (PUBLISHED_RETRIEVERS if published else RETRIEVERS)
    settings = ExperimentSettings(
        families=tuple(families),
        backbones=tuple(backbones),
        retrievers=tuple(retrievers),
        # The embedded models are compared with stand-ins of their size; published ones read real pages.
        baselines="miniature" if set(backbones) <= set(BACKBONES) else "published",
        ocr=ocr,
        device=device,
        candidates=candidates,
        full_pass_every=full_pass_every,
    )
    settings = shrink_settings(settings) if quick else settings
    return settings if draws is None else replace(settings, draws=draws)
