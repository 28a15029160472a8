"""The twelve drawn corpora: four like ViDoRe 2, eight like ViDoRe 3, drawn where they are missing."""

from pathlib import Path

from experiments.datasets.base import Benchmark, BenchmarkCorpus
from experiments.datasets.folder import DOCUMENTS, QRELS, QUERIES, read_corpus
from miniature.corpora import PLANS, CorpusPlan, make_corpus
from ridgerank.errors import DatasetError

FAMILIES = {1: "miniature-1", 2: "miniature-2"}
"""Family → name of its benchmark."""


def load_miniature(work: Path, *, corpora: frozenset[str] | None = None) -> list[Benchmark]:
    """Both families, drawn into `work`; `corpora` keeps only some, for a cut-down run."""
    plans = [plan for plan in PLANS if corpora is None or plan.name in corpora]
    unknown = sorted((corpora or frozenset()) - {plan.name for plan in PLANS})
    if unknown:
        known = ", ".join(plan.name for plan in PLANS)
        raise DatasetError(f"no corpus of the miniature is called {unknown[0]!r}; there are: {known}")
    return [
        Benchmark(
            name,
            tuple(draw_missing_corpus(plan, work / plan.name) for plan in plans if plan.family == family),
        )
        for family, name in FAMILIES.items()
        if any(plan.family == family for plan in plans)
    ]


def draw_missing_corpus(plan: CorpusPlan, folder: Path) -> BenchmarkCorpus:
    """One corpus, drawn unless it lies there whole: its judgements are written last."""
    if not _is_drawn(plan, folder):
        try:
            from miniature.draw import draw_corpus
        except ModuleNotFoundError as error:
            raise DatasetError(f"{error}; to draw: pip install 'ridgerank[miniature]'") from error
        for _ in draw_corpus(make_corpus(plan), folder):
            pass
    return read_corpus(folder, name=plan.name)[0]


def _is_drawn(plan: CorpusPlan, folder: Path) -> bool:
    """Whether a folder has as many documents and queries as the plan says; planning anew takes a second."""
    if not (folder / QRELS).exists():
        return False
    query_count = len((folder / QUERIES).read_text(encoding="utf-8").splitlines())
    document_count = sum(1 for _ in (folder / DOCUMENTS).glob("*.pdf"))
    return (document_count, query_count) == (plan.documents, sum(plan.questions.values()))
