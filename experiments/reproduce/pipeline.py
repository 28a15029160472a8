"""A whole run: stages, tables, figures, claims and runs, into one folder."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.claims import Claim, check_claims
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.figures import (
    PaperFigure,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    figure7,
    figure8,
)
from experiments.reproduce.prepare import Need, prepare
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import StageProgress
from experiments.reproduce.tables.ablation import table3
from experiments.reproduce.tables.efficiency import table4
from experiments.reproduce.tables.quality import table1, table2, table5, table8
from experiments.reproduce.tables.table import Table
from experiments.reproduce.tables.weights import table6, table7, table9, weights
from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.errors import DatasetError
from ridgerank.trec import write_run
from ridgerank.version import __version__


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One table or figure."""

    compute: Callable[[Analysis], Table | PaperFigure]
    needs: frozenset[Need]


def _entry(compute: Callable[[Analysis], Table | PaperFigure], *needs: Need) -> CatalogueEntry:
    return CatalogueEntry(compute, frozenset(needs))


CATALOGUE: Mapping[str, CatalogueEntry] = {
    "table1": _entry(table1, Need.FIRST, Need.BASELINES),
    "table2": _entry(table2, Need.ALL, Need.BASELINES),
    "table3": _entry(table3, Need.FIRST),
    "table4": _entry(table4, Need.FIRST, Need.BASELINES),
    "table5": _entry(table5, Need.ALL, Need.BASELINES),
    "table6": _entry(table6, Need.ALL),
    "table7": _entry(table7, Need.FIRST),
    "table8": _entry(table8, Need.FIRST, Need.DEEP, Need.BASELINES),
    "table9": _entry(table9, Need.ALL, Need.BASELINES),
    "figure2": _entry(figure2, Need.FIRST, Need.BASELINES),
    "figure3": _entry(figure3, Need.FIRST, Need.BASELINES),
    "figure4": _entry(figure4, Need.ALL),
    "figure5": _entry(figure5, Need.FIRST, Need.LAYERS),
    "figure6": _entry(figure6, Need.FIRST, Need.LAYERS),
    "figure7": _entry(figure7, Need.FIRST, Need.DEEP, Need.BASELINES),
    "figure8": _entry(figure8, Need.FIRST, Need.BASELINES),
    "weights": _entry(weights, Need.ALL),
}
"""The paper's tables 1 to 9 and figures 2 to 8 (figure 1 shows the method), and two tables of ours."""


def select_entries(only: Sequence[str]) -> dict[str, CatalogueEntry]:
    """The entries with these names, or all where no name is given."""
    unknown = [name for name in only if name not in CATALOGUE]
    if unknown:
        raise DatasetError(f"nothing is called {unknown[0]!r}; there are: {', '.join(CATALOGUE)}")
    return {name: entry for name, entry in CATALOGUE.items() if not only or name in only}


LEAST_CORPORA = 3
"""One left out, one to validate λ on, one to fit."""


def run_experiments(
    settings: ExperimentSettings,
    work: Path,
    out: Path,
    progress: StageProgress,
    *,
    only: Sequence[str] = (),
) -> list[Claim]:
    """Compute what is missing and write the tables and figures; the claims come back with a full run."""
    corpora = settings.families[0].corpora
    if len(corpora) < LEAST_CORPORA:
        raise DatasetError(
            f"{settings.families[0].name} has {len(corpora)} corpora, wanted at least {LEAST_CORPORA}: "
            "readouts leave one corpus out, validate on another and fit on the rest"
        )
    start = time.perf_counter()
    resumed = work.exists() and any(work.iterdir())
    entries = select_entries(only)
    experiment = Experiment(settings, work, progress)
    needs = frozenset[Need]().union(*(entry.needs for entry in entries.values()))
    prepare(experiment, needs)
    staged = time.perf_counter() - start
    analysis = Analysis(experiment)
    progress.start("tables and figures", len(entries))
    for name, entry in entries.items():
        write_result(entry.compute(analysis), out)
        progress.echo(f"{out / name}.md")
        progress.advance()
    claims = [] if only else check_claims(analysis)
    if not only:
        _write_json(out / "directions.json", [asdict(claim) for claim in claims])
        write_runs(analysis, out / "runs")
    tabled = time.perf_counter() - start - staged
    facts = describe_run(settings, analysis, staged, tabled, resumed=resumed)
    _write_json(out / ("run.json" if not only else f"run-{'-'.join(only)}.json"), facts)
    return claims


def write_result(result: Table | PaperFigure, out: Path) -> None:
    """JSON and Markdown; of a figure PNG as well."""
    for suffix, text in (("json", result.to_json()), ("md", result.to_markdown())):
        with replace_text_file(out / f"{result.name}.{suffix}") as file:
            file.write(text)
    if isinstance(result, PaperFigure):
        with replace_file(out / f"{result.name}.png") as scratch:
            scratch.write_bytes(result.render())


def write_runs(analysis: Analysis, folder: Path) -> None:
    """A TREC run for every method and corpus behind every retriever, or one for each readout.

    `FAMILY/RETRIEVER/METHOD/CORPUS.trec`, for `ridgerank evaluate` and `fuse`.
    """
    for number, family in enumerate(analysis.settings.families):
        for retriever in analysis.settings.retrievers:
            for method in analysis.results(number, retriever):
                for corpus, result in zip(analysis.corpora(number), method.by_corpus, strict=False):
                    for readout, run in enumerate(result.runs, start=1):
                        name = corpus if len(result.runs) == 1 else f"{corpus}-{readout}"
                        parts = (family.name, retriever, method.key, f"{name}.trec")
                        path = folder.joinpath(*(part.replace("/", "-").replace(" ", "-") for part in parts))
                        with replace_text_file(path) as file:
                            write_run(run, file, tag="ridgerank")


def describe_run(
    settings: ExperimentSettings, analysis: Analysis, staged: float, tabled: float, *, resumed: bool
) -> dict[str, object]:
    """What was run, on what, with what."""
    sample = {
        analysis.experiment.corpus(corpus_key).name: len(analysis.sample[corpus_key.number])
        for corpus_key in analysis.experiment.corpus_keys(0)
    }
    return {
        "ridgerank": __version__,
        "families": [
            {
                "name": family.name,
                "corpora": {corpus.name: len(corpus.queries) for corpus in family.corpora},
                "queries": sum(len(corpus.queries) for corpus in family.corpora),
                "note": family.note,
            }
            for family in settings.families
        ],
        "backbones": list(settings.backbones),
        "retrievers": list(settings.retrievers),
        "arms": settings.baselines,
        "candidates": settings.candidates,
        "kept positions": str(settings.keep),
        "calibration sample": sample,
        "penalties": {
            backbone: analysis.readouts(backbone).choice.deployed for backbone in settings.backbones
        },
        "seed": settings.seed,
        "minutes": {
            "stages": round(staged / 60, 1),
            "tables": round(tabled / 60, 1),
            "processor": round(sum(os.times()[:4]) / 60, 1),
        },
        "stages from before": resumed,
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def _write_json(path: Path, facts: object) -> None:
    with replace_text_file(path) as file:
        file.write(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
