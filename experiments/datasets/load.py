"""From the name of a benchmark to its corpora on disk."""

from collections.abc import Sequence
from pathlib import Path

from experiments.datasets.base import Benchmark
from experiments.datasets.drawn_corpora import load_miniature
from experiments.datasets.folder import load_folder
from experiments.datasets.vidore_corpora import FAMILIES, load_vidore
from ridgerank.errors import DatasetError

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
