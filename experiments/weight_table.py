"""What each way to a weight gains over the retriever, by the product's defaults (results/weight.json).

    python -m experiments.weight_table STORE FOLDER --row slides --out results/weight.json
    python -m experiments.weight_table --out results/weight.json

The first command adds a row: STORE holds the pages of FOLDER/documents, queries.jsonl asks about them and
qrels.trec judges. A query that names its `document` is ranked within it. The second prints the table. A row
that is there is not measured again; an interrupted one uses what its calibration left beside the store.

In each of 50 splits some questions may be judged and the rest are scored; all columns score the same ones.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import typer

from experiments.datasets.base import QUERIES, read_corpus
from ridgerank.atomic import replace_text_file
from ridgerank.calibration import calibrate
from ridgerank.calibration.calibrate import CANDIDATES, Workbench
from ridgerank.calibration.fit import CalibrationLists, QueryLists, ReadoutFit, fit
from ridgerank.calibration.readout_file import shipped_for
from ridgerank.calibration.weight import Reading, Scorer, weigh
from ridgerank.errors import RidgeRankError
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.fusion.weight import label_free_estimate
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.records import STATES, Candidate, Query, document_name
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore, ids_filter
from ridgerank.trec import Qrels, Run

SPLITS, JUDGED, UNLABELLED = 50, (8, 16, 64), 16
GRID = np.linspace(0.0, 1.0, 21)
MEASURE = "nDCG@5"
RETRIEVER, SHIPPED, CALIBRATED = "retriever", "shipped readout, at once", "calibrated"
CONSTANT, BEST, PAPER = "constant 0.5", "best in hindsight", "§B.6"
ASKED = f"{UNLABELLED} unlabelled questions"
JUDGED_COLUMNS = {f"{number} judged": number for number in JUDGED}
COLUMNS = (RETRIEVER, SHIPPED, CALIBRATED, ASKED, *JUDGED_COLUMNS, CONSTANT, BEST, PAPER)

Rank = tuple[Floats, float]
"""(members,) scores of a readout, and its weight."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Real questions over their candidates."""

    lists: QueryLists
    groups: tuple[str, ...]
    """(lists,): the document a question is about, or its own id; what is resampled."""
    qrels: Qrels

    def quality(self, rank: Rank) -> Floats:
        """(lists,) nDCG@5 in percent; equal scores keep the retriever's order."""
        scores, weight = rank
        lists = self.lists.lists
        fused = fuse_scores(self.lists.retriever, scores, weight, lists)
        ids = [self.lists.queries[number].query_id for number in lists.list_numbers().tolist()]
        run = Run.of_columns(ids, self.lists.page_ids, list(-lists.ranks(fused).astype(float)))
        return evaluate(run, self.qrels, (MEASURE,)).of(MEASURE)


def main() -> None:
    """Measure a row unless it is there; print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", nargs="?", help="a store of the documents of FOLDER")
    parser.add_argument("folder", nargs="?", type=Path, help="documents, queries.jsonl, qrels.trec")
    parser.add_argument("--row", default="", help="the row's name [default: the folder's]")
    parser.add_argument("--retriever", help="as for calibrate [default: the store's, else bm25]")
    parser.add_argument("--dtype", help="of the model")
    parser.add_argument("--uncalibrated", action="store_true", help="only what a shipped readout gives")
    parser.add_argument("--out", type=Path, required=True, help="JSON to add the row to")
    options = parser.parse_args()
    try:
        rows = json.loads(options.out.read_text()) if options.out.exists() else []
        if options.store:
            rows = add_row(rows, options)
            with replace_text_file(options.out) as file:
                file.write(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    except RidgeRankError as error:
        sys.exit(f"error: {error}")
    typer.echo(format_rows(rows))


def add_row(rows: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows and the one that is asked for."""
    with PageStore.open(options.store) as store:
        retriever = load_retriever(options.retriever, store)
        model = Path(store.lineage.backbone).name
        key = {"set": options.row or options.folder.name, "model": model, "retriever": retriever.name}
        if any(key.items() <= row.items() for row in rows):
            return rows
        with calibrate.open_workbench(store, retriever=retriever, dtype=options.dtype) as workbench:
            asked = ask(workbench, options.folder)
            measured = (
                measure_shipped(workbench, asked)
                if options.uncalibrated
                else measure(workbench, asked, calibrate.make_lists(workbench))
            )
    return [*rows, {**key, "dtype": options.dtype or "default", **measured}]


def ask(workbench: Workbench, folder: Path) -> Asked:
    """The candidates and states of a folder's judged questions."""
    store, retriever = workbench.shallow.store, workbench.retriever
    rows = map(json.loads, (folder / QUERIES).read_text(encoding="utf-8").splitlines())
    about = {str(row["query_id"]): row.get("document", "") for row in rows}
    corpus, _ = read_corpus(folder, name=folder.name)
    pages: dict[str, list[str]] = {}
    for page_id in store.page_ids():
        pages.setdefault(document_name(store.reference(page_id)), []).append(page_id)
    candidates: dict[Query, list[Candidate]] = {}
    for query in corpus.queries:
        if document := about[query.query_id]:
            inside = PageSelection(frozenset(pages[document]), ids_filter(pages[document]))
            [candidates[query]] = retriever.search_within([query.text], CANDIDATES, inside)
        else:
            candidates |= calibrate.find_candidates(retriever, [query], CANDIDATES)
    names = store.lookup_many(page for grades in corpus.qrels.values() for page in grades)
    qrels = {
        query: {names.get(page, page): grade for page, grade in grades.items()}
        for query, grades in corpus.qrels.items()
    }
    members = [(query, page) for query, found in candidates.items() for page in found]
    run = workbench.shallow.run_both
    passes = [run(query.text, [page.page_id for page in found]) for query, found in candidates.items()]
    lists = QueryLists(
        queries=tuple(candidates),
        page_ids=tuple(page.page_id for _, page in members),
        lists=Ragged.of_lengths(len(found) for found in candidates.values()),
        retriever=np.array([page.score for _, page in members]),
        states={
            state: np.concatenate([each[state].cpu().numpy().astype(np.float64) for each in passes])
            for state in STATES
        },
        targets={},
        relevance=np.array([float(qrels[query.query_id].get(page.page_id, 0)) for query, page in members]),
    )
    return Asked(lists, tuple(about[query.query_id] or query.query_id for query in candidates), qrels)


def measure(workbench: Workbench, asked: Asked, lists: CalibrationLists) -> dict[str, Any]:
    """One row: the quality of every column, and the weights behind it."""
    assert lists.fitted is not None  # nothing was given that would take the place of a fit
    fits = fit(lists.fitted, lists.documents)
    known = calibrate.scorers(fits, lists)

    def decide(questions: QueryLists | None) -> tuple[Reading, float]:
        weighed = weigh(
            replace(lists, asked=questions),
            known,
            incumbent=workbench.incumbent,
            keep_paper=workbench.keeps_paper,
        )
        return weighed.reading, weighed.weight.weight

    reading, weight = decide(None)
    fitted = fits[reading]
    assert isinstance(fitted, ReadoutFit)
    data, target = fitted.data, fitted.data.targets[reading[0]]
    paper = label_free_estimate(correlate(data.retriever, fitted.held_out_scores, target, data.lists)).weight
    own = known[reading](asked.lists)
    count = len(asked.groups)
    aside = np.isin(np.arange(count), np.random.default_rng(1).permutation(count)[:UNLABELLED])
    fixed: dict[str, Rank] = {
        RETRIEVER: (own, 0.0),
        CALIBRATED: (own, weight),
        ASKED: rank_asked(workbench, asked, aside),
        CONSTANT: (own, 0.5),
        PAPER: (own, paper),
    }
    fixed |= rank_shipped(workbench, asked)
    quality = {name: asked.quality(rank) for name, rank in fixed.items()}
    sweep = [asked.quality((own, float(each))) for each in GRID]
    best = int(np.argmax([each.mean() for each in sweep]))
    quality[BEST] = sweep[best]
    split, weights = score_splits(asked, known, decide, quality, aside)
    return {
        "questions": len(asked.groups),
        "reading": ", ".join(reading),
        "scored": int((~aside).sum()),
        "columns": summarize(split, list(compress(asked.groups, ~aside))),
        "weights": {name: rank[1] for name, rank in fixed.items()} | weights | {BEST: float(GRID[best])},
    }


def rank_shipped(workbench: Workbench, asked: Asked) -> dict[str, Rank]:
    """The column of the readout that comes with the package; empty if there is none for this model."""
    backbone, lineage = workbench.shallow.backbone, workbench.shallow.store.lineage
    if (found := shipped_for(lineage, backbone.geometry.width)) is None:
        return {}
    found[1].require(backbone, lineage)
    shipped = found[1].calibration
    return {SHIPPED: (shipped.readout.score(asked.lists.states[shipped.state]), workbench.incumbent)}


def measure_shipped(workbench: Workbench, asked: Asked) -> dict[str, Any]:
    """One row without a calibration."""
    [(name, (scores, weight))] = rank_shipped(workbench, asked).items()
    quality = {RETRIEVER: asked.quality((scores, 0.0)), name: asked.quality((scores, weight))}
    return {
        "questions": len(asked.groups),
        "columns": summarize(quality, asked.groups),
        "weights": {RETRIEVER: 0.0, name: weight},
    }


def rank_asked(workbench: Workbench, asked: Asked, aside: Bools) -> Rank:
    """What a calibration gives that has some real questions (questions,) and no judgement of them."""
    lists = calibrate.make_lists(workbench, queries=asked.lists.select(aside).queries)
    assert lists.fitted is not None
    known = calibrate.scorers(fit(lists.fitted, lists.documents), lists)
    weighed = weigh(lists, known, incumbent=workbench.incumbent, keep_paper=workbench.keeps_paper)
    return known[weighed.reading](asked.lists), weighed.weight.weight


def score_splits(
    asked: Asked,
    known: Mapping[Reading, Scorer],
    decide: Callable[[QueryLists | None], tuple[Reading, float]],
    quality: Mapping[str, Floats],
    aside: Bools,
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Column → (questions,) quality, averaged over the splits that score a question, and mean weights.

    Questions `aside` (questions,) were seen without judgements: they may be judged, and are never scored.
    """
    generator, count = np.random.default_rng(0), len(asked.groups)
    judged_count = max(min(max(JUDGED), 2 * count // 3), int(aside.sum()))
    names = {name: number for name, number in JUDGED_COLUMNS.items() if number <= judged_count}
    sums = {name: np.zeros(count) for name in (*quality, *names)}
    times, weights = np.zeros(count), dict.fromkeys(names, 0.0)
    scores = {reading: scorer(asked.lists) for reading, scorer in known.items()}
    for _ in range(SPLITS):
        drawn = generator.permutation(np.flatnonzero(~aside))
        extra = judged_count - int(aside.sum())
        judged = generator.permutation([*np.flatnonzero(aside), *drawn[:extra]])
        scored = np.isin(np.arange(count), drawn[extra:])
        times += scored
        for name, values in quality.items():
            sums[name] += scored * values
        for name, number in names.items():
            reading, weight = decide(asked.lists.select(np.isin(np.arange(count), judged[:number])))
            sums[name] += scored * asked.quality((scores[reading], weight))
            weights[name] += weight / SPLITS
    kept = times > 0
    return {name: values[kept] / times[kept] for name, values in sums.items()}, weights


def summarize(quality: Mapping[str, Floats], groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Column → mean, gain over the retriever and its 95 % interval, whole groups drawn with replacement."""
    names = sorted(set(groups))
    member = np.array([[group == name for group in groups] for name in names], dtype=np.float64)
    drawn = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), size=2000)
    summary = {}
    for column, values in quality.items():
        gains = values - quality[RETRIEVER]
        means = (drawn @ (member @ gains)) / (drawn @ member.sum(axis=1))
        interval = [round(float(each), 2) for each in np.quantile(means, [0.025, 0.975])]
        summary[column] = {
            MEASURE: round(float(values.mean()), 2),
            "gain": round(float(gains.mean()), 2),
            "interval": interval,
        }
    return summary


def format_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of the columns that some row has: nDCG@5, in brackets the weight."""
    columns = [column for column in COLUMNS if any(column in row["columns"] for row in rows)]
    lines = [["set", "model", "behind", *columns], ["---"] * (3 + len(columns))]
    for row in rows:
        cells = [row["set"], row["model"], row["retriever"]]
        for column in columns:
            cell, weight = row["columns"].get(column), row["weights"].get(column)
            quality = f"{cell[MEASURE]:.1f}" if cell else "–"
            cells.append(f"{quality} ({weight:.2f})" if cell and weight else quality)
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
