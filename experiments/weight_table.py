r"""What users get by the defaults on documents of their own (results/quality.json).

    python -m experiments.weight_table STORE FOLDER --row slides --work WORK --out results/quality.json \
        --retriever bm25 dense bm25+dense --dense BGE --cross-encoder MINILM --dtype bfloat16
    python -m experiments.weight_table --out results/quality.json

The first command adds a row for each retriever: STORE holds the pages of FOLDER/documents, queries.jsonl asks
about them and qrels.trec judges. A query that names its `document` is ranked within it. BGE and MINILM are
folders of ONNX models; without them their columns are left out. The second prints the tables. A whole row
that is there is not measured again. States, targets and scores are kept in WORK, question by question and
page by page: an interrupted command goes on where it stopped. STORE is not written.

In each of 50 splits some questions may be judged and the rest are scored; all columns score the same ones.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import typer

from experiments.baselines.cross_encoders import TextReranker
from experiments.baselines.onnx_models import OnnxCrossEncoder, OnnxEmbedder
from experiments.datasets.base import DOCUMENTS, QUERIES, read_corpus
from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.backbones.base import full_margins
from ridgerank.backbones.model_settings import ModelSettings, available_targets
from ridgerank.calibration import calibrate
from ridgerank.calibration.calibrate import CANDIDATES, StatePasses, Workbench
from ridgerank.calibration.fit import LEAST_LISTS, CalibrationLists, QueryLists, ReadoutFit, fit, fit_readout
from ridgerank.calibration.queries import QUERIES as CUT
from ridgerank.calibration.queries import cut_questions
from ridgerank.calibration.readout_file import shipped_for
from ridgerank.calibration.teacher import TargetCache, complete_targets, target_column
from ridgerank.calibration.weight import Reading, Scorer, weigh
from ridgerank.errors import RidgeRankError
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.fusion.weight import label_free_estimate
from ridgerank.lineage import fingerprint
from ridgerank.ragged import Bools, Floats
from ridgerank.records import STATES, Candidate, Query, State, document_name
from ridgerank.retrievers.base import JOINED_BY, HybridRetriever, Retriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore, ids_filter
from ridgerank.store.sidecar import rerender_pages
from ridgerank.trec import Qrels, Run

SPLITS, JUDGED, UNLABELLED = 50, (8, 16, 64), 16
TIMED, TIMED_IN_FULL, DRAWS = 8, 2, 10
"""Queries that are timed, those of them that are timed at full depth, and pairs of readouts compared."""
GRID = np.linspace(0.0, 1.0, 21)
MEASURE = "nDCG@5"
RETRIEVER, SHIPPED, CALIBRATED = "retriever", "shipped readout, at once", "calibrated"
CONSTANT, BEST, PAPER = "constant 0.5", "best in hindsight", "§B.6"
CROSS, FULL = "trained cross encoder, fused", "full model, fused"
ASKED = f"{UNLABELLED} unlabelled questions"
JUDGED_COLUMNS = {f"{number} judged": number for number in JUDGED}
COLUMNS = (RETRIEVER, SHIPPED, CALIBRATED, ASKED, *JUDGED_COLUMNS, CONSTANT, BEST, PAPER)
BY_QUESTION = (RETRIEVER, SHIPPED, CALIBRATED, ASKED, *JUDGED_COLUMNS, CONSTANT, CROSS, FULL)
REQUEST, CROSS_SECONDS, FULL_SECONDS = "request", "trained cross encoder", "full model"

Rank = tuple[Floats, float]
"""(members,) scores of a readout, and its weight."""
Row = dict[str, Any]


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

    def candidates(self) -> dict[Query, list[Candidate]]:
        """The candidates of each question, best first."""
        pages, offsets = self.lists.page_ids, self.lists.lists.offsets.tolist()
        found = [Candidate(*each) for each in zip(pages, self.lists.retriever.tolist(), strict=True)]
        return {query: found[offsets[n] : offsets[n + 1]] for n, query in enumerate(self.lists.queries)}

    def aside(self) -> Bools:
        """(lists,): the questions that are given without judgements, and never scored; none of a few."""
        count = len(self.groups)
        chosen = np.random.default_rng(1).permutation(count)[: UNLABELLED if count > 2 * UNLABELLED else 0]
        return np.isin(np.arange(count), chosen)


class KeptPasses(ShallowPass):
    """Keeps what it computes in a folder: a question is run over a page once."""

    def __init__(self, shallow: ShallowPass, folder: Path) -> None:
        super().__init__(shallow.backbone, shallow.store)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def run_both(self, query: str, page_ids: Sequence[str]) -> dict[State, torch.Tensor]:
        """The states that are kept, and those of the other pages, which are kept from now on."""
        path = self._folder / f"{fingerprint({'query': query})}.npz"
        held: dict[str, Any] = {}
        if path.exists():
            with np.load(path) as file:
                held = dict(zip(file["page_ids"].tolist(), file["states"], strict=True))
        if missing := [page for page in dict.fromkeys(page_ids) if page not in held]:
            states = super().run_both(query, missing)
            rows = np.stack([states[state].cpu().numpy() for state in STATES], axis=1)
            held |= dict(zip(missing, rows, strict=True))
            with replace_file(path) as scratch, scratch.open("wb") as kept:
                np.savez(kept, page_ids=np.array(list(held)), states=np.stack(list(held.values())))
        chosen = torch.from_numpy(np.stack([held[page] for page in page_ids]))
        return {state: chosen[:, number] for number, state in enumerate(STATES)}


def main() -> None:
    """Measure rows unless they are there; print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", nargs="?", help="a store of the documents of FOLDER")
    parser.add_argument("folder", nargs="?", type=Path, help="documents, queries.jsonl, qrels.trec")
    parser.add_argument("--row", default="", help="the rows' name [default: the folder's]")
    parser.add_argument(
        "--retriever",
        nargs="+",
        default=["bm25"],
        help="as for calibrate, `dense` being the ONNX embedder; `own` is the store's",
    )
    parser.add_argument("--dense", type=Path, help="folder of an ONNX embedder")
    parser.add_argument("--cross-encoder", type=Path, help="folder of a trained ONNX cross encoder")
    parser.add_argument("--dtype", help="of the model")
    parser.add_argument("--work", type=Path, help="folder for what was computed")
    parser.add_argument("--out", type=Path, required=True, help="JSON to add the rows to")
    options = parser.parse_args()
    if options.store and not options.work:
        parser.error("give --work, a folder")
    try:
        if options.store:
            add_rows(options)
    except RidgeRankError as error:
        sys.exit(f"error: {error}")
    rows = read_rows(options.out)
    typer.echo("\n\n".join([format_rows(rows), format_quality(rows), *format_pools(rows)]))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; none if it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def add_rows(options: argparse.Namespace) -> None:
    """Measure the rows that are asked for and not whole, each written as soon as it has a column more."""
    with PageStore.open(options.store) as store:
        backbone = ModelSettings.from_lineage(store.lineage, dtype=options.dtype).load()
        work = options.work / fingerprint({"lineage": store.lineage.to_json(), "dtype": options.dtype})
        shallow = KeptPasses(ShallowPass(backbone, store), work / "states")
        keys: list[Row] = []
        asked: dict[Workbench, Asked] = {}
        for name in options.retriever:
            retriever = load_members(name, store, options)
            key = {"set": options.row or options.folder.name, "model": Path(store.lineage.backbone).name}
            key |= {"retriever": retriever.name, "dtype": options.dtype or "default"}
            if any(key.items() <= row.items() and "seconds" in row for row in read_rows(options.out)):
                continue
            bench = Workbench(shallow, retriever, work)
            keys.append(key)
            asked[bench] = ask(bench, options.folder)

        def write(key: Row, row: Row) -> None:
            kept = [row for row in read_rows(options.out) if not key.items() <= row.items()]
            with replace_text_file(options.out) as file:
                lines = (json.dumps(each, ensure_ascii=False) for each in [*kept, {**key, **row}])
                file.write("[\n" + ",\n".join(lines) + "\n]\n")

        others: dict[Workbench, dict[str, Rank]] = {}
        for key, (bench, each) in zip(keys, asked.items(), strict=True):
            others[bench] = rank_shipped(bench, each) | rank_cross_encoder(bench, each, options.cross_encoder)
            write(key, summarize_row(each, others[bench]))
        documents = [options.folder / DOCUMENTS]
        if asked:
            read_pages(asked, documents)
        for key, (bench, each) in zip(keys, asked.items(), strict=True):
            row = measure(bench, each, others[bench], documents)
            seconds = time_queries(bench, each, options, row["reading"].partition(", ")[2])
            write(key, {**row, "seconds": seconds})


def load_members(name: str, store: PageStore, options: argparse.Namespace) -> Retriever:
    """A retriever, or several joined by +."""
    members = [
        OnnxEmbedder(options.dense, store, work=options.work / "vectors")
        if member == "dense" and options.dense
        else load_retriever(None if member == "own" else member, store)
        for member in name.split(JOINED_BY)
    ]
    return HybridRetriever(members) if len(members) > 1 else members[0]


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
        query.query_id: {names.get(page, page): grade for page, grade in corpus.qrels[query.query_id].items()}
        for query in candidates
    }
    members = ((query, page.page_id) for query, found in candidates.items() for page in found)
    relevance = np.array([float(qrels[query.query_id].get(page, 0)) for query, page in members])
    passes = StatePasses(workbench.shallow, STATES, report, len(candidates), None)
    lists = passes.lists(candidates, relevance)
    assert lists is not None  # a corpus without judged questions is refused
    return Asked(lists, tuple(about[query.query_id] or query.query_id for query in candidates), qrels)


def report(step: str, done: int, total: int) -> None:
    """Say how far it is, now and then."""
    if done and (done % 20 == 0 or done == total):
        typer.echo(f"{step}: {done} of {total}", err=True)


def read_pages(asked: Mapping[Workbench, Asked], documents: Sequence[Path]) -> None:
    """Compute the targets of all questions over all pages that a row needs: a page is read once."""
    wanted: dict[str, dict[str, Candidate]] = {}

    def add(candidates: Mapping[Query, Iterable[Candidate]]) -> None:
        for query, pages in candidates.items():
            wanted.setdefault(query.text, {}).update({page.page_id: page for page in pages})

    shallow, work = next((bench.shallow, bench.folder) for bench in asked)
    made = cut_questions(shallow.store.texts(), CUT)
    for bench, each in asked.items():
        add(each.candidates())
        for queries in (made, each.lists.select(each.aside()).queries):
            known = [query for query in queries if bench.retriever.answers(query.text)]
            free = calibrate.find_candidates(bench.retriever, known, CANDIDATES)
            add(calibrate.share_pages(bench.retriever, free, CANDIDATES))
    complete_targets(
        shallow.backbone,
        shallow.store,
        TargetCache(work, shallow.store.lineage),
        {query: list(pages.values()) for query, pages in wanted.items()},
        targets=available_targets(shallow.store.lineage.prompt_name),
        documents=documents,
        progress=partial(report, calibrate.TARGETS_STEP),
    )


def measure(workbench: Workbench, asked: Asked, others: Mapping[str, Rank], documents: Sequence[Path]) -> Row:
    """One row: the quality of every column, and the weights behind it; `others` need no calibration."""
    make = partial(calibrate.make_lists, workbench, documents=documents, progress=report)
    lists = make()
    assert lists.fitted is not None  # nothing was given that would take the place of a fit
    fits = fit(lists.fitted, lists.documents)
    known = calibrate.scorers(fits, lists)

    def decide(questions: QueryLists | None) -> tuple[Reading, float]:
        return decide_weight(workbench, replace(lists, asked=questions), known)

    reading, weight = decide(None)
    fitted = fits[reading]
    assert isinstance(fitted, ReadoutFit)
    data, target = fitted.data, fitted.data.targets[reading[0]]
    paper = label_free_estimate(correlate(data.retriever, fitted.held_out_scores, target, data.lists)).weight
    own = known[reading](asked.lists)
    ranks = {**others, CALIBRATED: (own, weight), CONSTANT: (own, 0.5), PAPER: (own, paper)}
    if (aside := asked.aside()).any():
        with_asked = make(queries=asked.lists.select(aside).queries)
        assert with_asked.fitted is not None
        scorers = calibrate.scorers(fit(with_asked.fitted, with_asked.documents), with_asked)
        chosen, deployed = decide_weight(workbench, with_asked, scorers)
        ranks[ASKED] = scorers[chosen](asked.lists), deployed
    agreement: dict[str, float] = {}
    cache = TargetCache(workbench.folder, workbench.shallow.store.lineage)
    column = target_column(cache, reading[0], asked.candidates())
    if None not in column:  # every page could be read again
        full = np.array(column, dtype=np.float64)
        ranks[FULL] = full, workbench.incumbent
        with_targets = replace(asked, lists=replace(asked.lists, targets={reading[0]: full}))
        agreement = compare_fits(with_targets, fitted, lists.documents)
    sweep = [asked.quality((own, float(weight))) for weight in GRID]
    ranks[BEST] = own, float(GRID[int(np.argmax([each.mean() for each in sweep]))])
    quality = {name: asked.quality(rank) for name, rank in ranks.items()}
    split, weights = score_splits(asked, known, decide, quality, aside)
    row = summarize_row(asked, ranks, split)
    row["weights"] |= weights
    return {**row, "reading": ", ".join(reading), "agreement": agreement}


def compare_fits(asked: Asked, made: ReadoutFit, documents: Mapping[str, str]) -> dict[str, float]:
    """Agreement with the full model on real questions: of readouts fitted on made ones, and on real ones.

    Both are fitted on as many questions, and compared on real ones that neither saw, over 10 draws. Empty if
    there are too few.
    """
    count, generator = len(asked.groups), np.random.default_rng(2)
    number = min(len(made.data.queries), count // 2)
    sums = {"made": 0.0, "real": 0.0}
    if number < LEAST_LISTS:
        return {}
    for _ in range(DRAWS):
        chosen = np.isin(np.arange(count), generator.permutation(count)[:number])
        some = np.arange(len(made.data.queries))
        data = made.data.select(np.isin(some, generator.permutation(some)[:number]))
        rest = asked.lists.select(~chosen)
        for name, lists in (("made", data), ("real", asked.lists.select(chosen))):
            fitted = fit_readout(lists, made.target, made.state, documents)
            scores = rest.states[made.state] @ fitted.vector
            agreement = correlation(scores, rest.targets[made.target], rest.lists).mean()
            sums[name] += float(agreement) / DRAWS
    return {**sums, "ratio": sums["made"] / sums["real"], "questions": number}


def rank_shipped(workbench: Workbench, asked: Asked) -> dict[str, Rank]:
    """The columns that need nothing of one's own: the retriever, and the readout that comes with the package.

    The latter is left out if there is none for this model.
    """
    backbone, lineage = workbench.shallow.backbone, workbench.shallow.store.lineage
    ranks: dict[str, Rank] = {RETRIEVER: (asked.lists.retriever, 0.0)}
    if (found := shipped_for(lineage, backbone.geometry.width)) is not None:
        found[1].require(backbone, lineage)
        shipped = found[1].calibration
        scores = shipped.readout.score(asked.lists.states[shipped.state])
        ranks[SHIPPED] = scores, workbench.incumbent
    return ranks


def rank_cross_encoder(workbench: Workbench, asked: Asked, folder: Path | None) -> dict[str, Rank]:
    """The column of a trained cross encoder over the pages' text, with an equal say; empty without one."""
    if folder is None:
        return {}
    store = workbench.shallow.store
    any_model = replace(store.lineage, weights="", processor="", prompt="", max_pixels=None, page_text=None)
    lineage = replace(any_model, family=folder.name)  # the scores do not depend on the store's model
    cache = TargetCache(workbench.folder.parent / folder.name, lineage)
    model = TextReranker(OnnxCrossEncoder(folder), store, name=folder.name)
    candidates = asked.candidates()
    for number, (query, pages) in enumerate(candidates.items()):
        missing = [page for page in pages if cache.target("margin", query.text, page.page_id) is None]
        if missing:
            scores = model.score(query.text, missing).tolist()
            found = zip(missing, scores, strict=True)
            cache.add({page.page_id: {query.text: score} for page, score in found})
        report(folder.name, number + 1, len(candidates))
    return {CROSS: (np.array(target_column(cache, "margin", candidates), float), workbench.incumbent)}


def decide_weight(
    workbench: Workbench, lists: CalibrationLists, known: Mapping[Reading, Scorer]
) -> tuple[Reading, float]:
    """The reading that a calibration deploys, and its weight."""
    weighed = weigh(lists, known, incumbent=workbench.incumbent, keep_paper=workbench.keeps_paper)
    return weighed.reading, weighed.weight.weight


def time_queries(
    workbench: Workbench, asked: Asked, options: argparse.Namespace, state: State
) -> dict[str, float]:
    """Processor seconds a query, medians: a pass over stored pages in memory, and what it stands for."""
    model, store = workbench.shallow.backbone, workbench.shallow.store
    some = list(asked.candidates().items())[:TIMED]
    calls: dict[str, list[Callable[[], object]]] = {REQUEST: [], FULL_SECONDS: []}
    passes = ShallowPass(model, store)
    for query, pages in some:
        ids = [page.page_id for page in pages]
        passes.run(query.text, ids)  # now they are in memory
        calls[REQUEST].append(partial(passes.run, query.text, ids, state=state))
    if options.cross_encoder:
        cross = TextReranker(OnnxCrossEncoder(options.cross_encoder), store, name="cross encoder")
        calls[CROSS_SECONDS] = [partial(cross.score, query.text, pages) for query, pages in some]
    for query, pages in some[:TIMED_IN_FULL]:
        ids, where = [page.page_id for page in pages], options.folder / DOCUMENTS
        batches = rerender_pages(store, ids, max_pixels=model.page_budget, documents=[where])
        contents = [model.content(page) for batch in batches for page in batch]
        calls[FULL_SECONDS].append(partial(full_margins, model, query.text, contents))
    return {name: median(map(processor_seconds, each)) for name, each in calls.items()}


def processor_seconds(call: Callable[[], object]) -> float:
    """Processor time of a call."""
    start = time.process_time()
    call()
    return round(time.process_time() - start, 4)


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


def summarize_row(asked: Asked, ranks: Mapping[str, Rank], split: Mapping[str, Floats] | None = None) -> Row:
    """A row of columns that score the same questions; by question those that later tables pool."""
    scored = ~asked.aside()
    columns = split or {name: asked.quality(rank)[scored] for name, rank in ranks.items()}
    groups = list(compress(asked.groups, scored))
    row: Row = {
        "questions": len(asked.groups),
        "scored": int(scored.sum()),
        "columns": summarize(columns, groups),
        "weights": {name: rank[1] for name, rank in ranks.items()},
        "groups": groups,
        "by question": {name: columns[name].round(2).tolist() for name in BY_QUESTION if name in columns},
    }
    if CALIBRATED in columns and SHIPPED in columns:
        difference = columns[SHIPPED] - columns[CALIBRATED]
        row["shipped over calibrated"] = [round(float(difference.mean()), 2), *interval(difference, groups)]
    return row


def summarize(quality: Mapping[str, Floats], groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Column → mean, gain over the retriever and its 95 % interval."""
    summary = {}
    for column, values in quality.items():
        gains = values - quality[RETRIEVER]
        summary[column] = {
            MEASURE: round(float(values.mean()), 2),
            "gain": round(float(gains.mean()), 2),
            "interval": interval(gains, groups),
        }
    return summary


def interval(values: Floats, groups: Sequence[str]) -> list[float]:
    """The 95 % interval of a mean, whole groups drawn with replacement."""
    names = sorted(set(groups))
    member = np.array([[group == name for group in groups] for name in names], dtype=np.float64)
    drawn = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), size=2000)
    means = (drawn @ (member @ values)) / (drawn @ member.sum(axis=1))
    return [round(float(each), 2) for each in np.quantile(means, [0.025, 0.975])]


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


def format_quality(rows: Sequence[Row]) -> str:
    """A Markdown table of gains over the retriever beside those of slower models, and what they cost."""
    names = (SHIPPED, CALIBRATED, "64 judged", CONSTANT, BEST, CROSS, FULL)
    header = ["set", "model", "behind", RETRIEVER, *names, "shipped over calibrated", "made over real"]
    lines = [[*header, "processor seconds a query"], ["---"] * (len(header) + 1)]
    for row in rows:
        columns, paired, agreement = row["columns"], row.get("shipped over calibrated"), row.get("agreement")
        cells = [row["set"], row["model"], row["retriever"], f"{columns[RETRIEVER][MEASURE]:.1f}"]
        for cell in map(columns.get, names):
            shown = cell and (cell[MEASURE], cell["gain"], *cell["interval"])
            cells.append("{:.1f} ({:+.1f} [{:+.1f}, {:+.1f}])".format(*shown) if shown else "–")
        cells.append("{:+.1f} [{:+.1f}, {:+.1f}]".format(*paired) if paired else "–")
        cells.append("{made:.2f} / {real:.2f}".format(**agreement) if agreement else "–")
        cells.append(", ".join(f"{name} {value:.2f}" for name, value in row.get("seconds", {}).items()))
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_pools(rows: Sequence[Row]) -> list[str]:
    """Behind each retriever the gains over all sets, or all of a `collection/set`."""
    behind: dict[str, list[Row]] = {}
    for row in rows:
        collection = f"{row['set'].partition('/')[0]}, " if "/" in row["set"] else ""
        behind.setdefault(f"{collection}behind {row['retriever']}", []).append(row)
    lines = []
    for where, each in behind.items():
        for name in (SHIPPED, CALIBRATED, "64 judged", CONSTANT):
            if some := [row for row in each if name in row.get("by question", {})]:
                gains, groups = pool(some, name)
                low, high = interval(gains, groups)
                found = f"{gains.mean():+.2f} [{low:+.2f}, {high:+.2f}]"
                sets = ", ".join(dict.fromkeys(row["set"] for row in some))
                lines.append(f"{where}, {name}: {found}, {len(gains)} questions of {sets}")
    return lines


def pool(rows: Sequence[Row], column: str) -> tuple[Floats, list[str]]:
    """(questions,) gains over the retriever, the mean of the rows of a set, and what is resampled."""
    gains: dict[str, list[Floats]] = {}
    for row in rows:
        values = row["by question"]
        gains.setdefault(row["set"], []).append(np.subtract(values[column], values[RETRIEVER]))
    groups = {row["set"]: [f"{row['set']}/{group}" for group in row["groups"]] for row in rows}
    means = [np.mean(each, axis=0) for each in gains.values()]
    return np.concatenate(means), [group for each in groups.values() for group in each]


if __name__ == "__main__":
    main()
