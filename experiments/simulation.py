"""A world with known truth: pages have a relevance, and three scores each see it through their own noise.

For tests. Scores are c·g + √(1 − c²)·ε with g the page's latent relevance, so c is a score's correlation
with g; `shared` mixes one common noise into retriever and reranker: it breaks the one-factor model.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ridgerank.atomic import replace_text_file
from ridgerank.ragged import Floats, Ragged
from ridgerank.trec import Qrels, Run, write_qrels, write_run


@dataclass(frozen=True, slots=True)
class World:
    """How well each of three scores sees relevance."""

    c_b: float = 0.45
    c_s: float = 0.6
    c_t: float = 0.7
    shared: float = 0.0
    """Share of noise variance that retriever and reranker have in common, 0 to 1."""
    candidates: int = 20
    relevant: float = 0.04
    """Share of candidates with grade 2; twice as many have grade 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Queries drawn from a world: one list each."""

    lists: Ragged
    retriever: Floats
    reranker: Floats
    teacher: Floats
    grades: Floats
    """(members,): 0, 1 or 2."""

    def run(self, scores: Floats) -> Run:
        """One of the score columns as a run."""
        queries, pages = self._names()
        return Run.of_columns(queries, pages, scores.tolist())

    def qrels(self) -> Qrels:
        """The grades as judgements."""
        judged: dict[str, dict[str, int]] = {}
        for query, page, grade in zip(*self._names(), self.grades.astype(int).tolist(), strict=True):
            judged.setdefault(query, {})[page] = grade
        return judged

    def write(self, folder: Path) -> None:
        """Write `retriever.trec`, `reranker.trec`, `teacher.trec` and `qrels.trec`."""
        for name in ("retriever", "reranker", "teacher"):
            with replace_text_file(folder / f"{name}.trec") as file:
                write_run(self.run(getattr(self, name)), file, tag=name)
        with replace_text_file(folder / "qrels.trec") as file:
            write_qrels(self.qrels(), file)

    def _names(self) -> tuple[list[str], list[str]]:
        queries = [f"q{number + 1}" for number in self.lists.list_numbers().tolist()]
        pages = [f"report-{number + 1}.pdf#{rank + 1}" for number, rank in self._cells()]
        return queries, pages

    def _cells(self) -> list[tuple[int, int]]:
        return list(zip(self.lists.list_numbers().tolist(), self.lists.positions().tolist(), strict=True))


def simulate(world: World, *, queries: int, seed: int) -> Sample:
    """Draw queries; the same seed gives the same sample."""
    generator = np.random.default_rng(seed)
    size = queries * world.candidates
    latent, common = generator.standard_normal(size), generator.standard_normal(size)

    def seen(c: float, shared: float) -> Floats:
        noise = np.sqrt(shared) * common + np.sqrt(1.0 - shared) * generator.standard_normal(size)
        scores: Floats = c * latent + np.sqrt(1.0 - c**2) * noise
        return scores

    retriever, reranker = seen(world.c_b, world.shared), seen(world.c_s, world.shared)
    teacher = seen(world.c_t, 0.0)
    cuts = np.quantile(latent, [1.0 - 3.0 * world.relevant, 1.0 - world.relevant])
    grades = np.searchsorted(cuts, latent, side="right").astype(np.float64)
    lists = Ragged.of_lengths([world.candidates] * queries)
    return Sample(lists, retriever, reranker, teacher, grades)
