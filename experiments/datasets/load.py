"""The benchmarks that experiments run on, by name."""

from collections.abc import Sequence
from pathlib import Path

from experiments.datasets.base import (
    DOCUMENTS,
    QRELS,
    QUERIES,
    Benchmark,
    BenchmarkCorpus,
    load_folder,
    read_corpus,
)
from experiments.datasets.vidore_corpora import FAMILIES, load_vidore
from miniature.corpora import PLANS, CorpusPlan, make_corpus
from ridgerank.errors import DatasetError

DRAWN = {1: "miniature-1", 2: "miniature-2"}
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
        for family, name in DRAWN.items()
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


KNOWN = ("miniature", "vidore", "vidore2", "vidore3", "folder:PATH")
_FOLDER = "folder:"


def load_benchmark(
    name: str,
    work: Path,
    *,
    languages: Sequence[str] | None = None,
    corpora: Sequence[str] | None = None,
    local: Path | None = None,
) -> list[Benchmark]:
    """The benchmarks behind a name: `miniature` and `vidore` are two families each, the others one.

    What has to be drawn or downloaded is put into `work`, once. `languages` keeps queries of some languages
    and `local` is a folder of data sets in the hub's layout, both for ViDoRe; `corpora` keeps some corpora.
    """
    is_folder = name.startswith(_FOLDER)
    if name not in KNOWN[:4] and not (is_folder and name.removeprefix(_FOLDER)):
        raise DatasetError(f"no benchmark called {name!r}; known: {', '.join(KNOWN)}")
    if (languages is not None or local is not None) and not name.startswith("vidore"):
        raise DatasetError(f"languages and a local copy are for ViDoRe; {name} has neither")
    chosen = None if corpora is None else frozenset(corpora)
    if name == "miniature":
        return load_miniature(work, corpora=chosen)
    if is_folder:
        return [_select_corpora(load_folder(Path(name.removeprefix(_FOLDER))), chosen)]
    families = FAMILIES if name == "vidore" else (name,)
    return [
        load_vidore(family, work, languages=languages, corpora=chosen, local=local) for family in families
    ]


def _select_corpora(benchmark: Benchmark, chosen: frozenset[str] | None) -> Benchmark:
    if chosen is None:
        return benchmark
    by_name = {corpus.name: corpus for corpus in benchmark.corpora}
    unknown = sorted(chosen - set(by_name))
    if unknown:
        raise DatasetError(f"no corpus {unknown[0]!r} in {benchmark.name}; there are: {', '.join(by_name)}")
    kept = tuple(corpus for name, corpus in by_name.items() if name in chosen)
    return Benchmark(benchmark.name, kept, benchmark.note)
