"""Quality over bytes: pages stored in several ways, by the paper's protocol.

    python -m benchmarks.storage [--backbone mini-qwen] [--work DIR] [--out results/compression.json]
        [--backbone DIR --documents DIR --checkpoints DIR]
    python -m benchmarks.storage --figure      # docs/compression.png of the rows in results/compression.json

Each setting is a rule for positions, bits and an exit layer. On drawn pages all queries of three corpora fit
the readout that ranks the fourth, and weights are read on the next corpus; recovery is the share of the gain
over the retriever, of the full cross encoder fused with it at its own weight, that is kept. A backbone that
is a folder is a language model over the text of real PDFs: targets, candidates and judgements are those of
the checkpoints of `benchmarks.quality`. `pass_time_ratio` is the time of a query over 20 pages divided by
that of the paper's setting in the same run. Results stay in --work and --checkpoints: run it again to
continue, or with further settings.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.quality import question_ndcg
from benchmarks.report import interleaved_seconds, publish
from benchmarks.tables import compression_table
from experiments.datasets.drawn_corpora import load_miniature
from experiments.protocols.held_out import hold_out_each
from experiments.protocols.recovery import recovery
from experiments.protocols.scored_corpus import ScoredCorpus
from experiments.real_documents.checkpoints import (
    QuestionTable,
    checkpoint_folder,
    load_questions,
    teacher_path,
)
from experiments.real_documents.questions import (
    Question,
    QuestionFolder,
    find_candidates,
    paths_of,
    read_question_folder,
)
from experiments.real_documents.transfer import JUDGED, fuse_by_judgements, transfer_readouts
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import Arrays, save_arrays, short_digest
from miniature import BACKBONES, RETRIEVERS
from miniature.corpora import PLANS
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix
from ridgerank.backbones.load import load_backbone
from ridgerank.cli._console import Bar
from ridgerank.errors import DatasetError
from ridgerank.fusion.correlations import correlation
from ridgerank.lineage import Keep, NumberFormat, StorageSetting, default_exit_layer
from ridgerank.records import Page
from ridgerank.store.codec import StoredPrefixes, compress, encode_shared
from ridgerank.store.layout import PackedPrefix, SharedPositions, block_shape
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import rerender_pages

FAMILY = 1
NEVER_TIMED = 1 << 30
"""Full passes are timed on the first query only, which the stage of the states asks for."""
PAPER = ("stride 1/3", "8")
SETTINGS = {
    "stride 1/3": ("8", "4", "3"),
    "stride 1/6": ("8",),
    "value-norm 1/3": ("8",),
    "value-norm 1/4": ("3/1",),
    "value-norm 1/5": ("4/1", "3", "3/2", "3/1"),
    "value-norm 1/6": ("8", "4", "4/2", "4/2 group 32", "3", "3/2", "3/1", "3 group 16", "2 group 16"),
    "value-norm 1/8": ("3",),
    "value-norm 1/9": ("4",),
}
"""Positions → bits, the paper's first."""
SHALLOWER_SETTINGS = {
    "stride 1/3": ("8",),
    "value-norm 1/4": ("3/1",),
    "value-norm 1/5": ("3/2", "3/1"),
    "value-norm 1/6": ("3/2",),
    "value-norm 1/8": ("3/1",),
}
"""Those that are measured with a shallower stop, too."""
_TIMED_PAGES = 20
_REPEATS = 15
"""How often each pass is timed."""
_QUESTIONS = 48
"""Of the documents, the first so many."""
_PAGES_PER_PART = 32
TEXT_SETTINGS = {
    ("stride 1/3", 1.0): ("8", "4 group 32", "4/2 group 32"),
    ("stride 1/3", 2 / 3): ("8",),
    ("stride 1/2", 2 / 3): ("4 group 32", "4/1"),
    ("stride 1/2", 4 / 7): ("4 group 32", "4/1"),
    ("stride 2/3", 4 / 7): ("4/1",),
    ("stride 1", 2 / 3): ("4 group 32",),
    ("stride 1", 4 / 7): ("3 group 32", "2 group 32", "3/1"),
    ("stride 1", 1 / 2): ("4 group 32", "4/2 group 32", "4/1", "3/2"),
    ("value-norm 1/3", 1.0): ("8",),
    ("value-norm 1/3", 4 / 7): ("4 group 32", "4/2 group 32", "4/2"),
    ("value-norm 1/2", 4 / 7): ("4 group 32", "4/2 group 32", "4/2", "3/2", "2 group 32", "4/1", "3/1"),
}
"""Positions and the exit layer as a part of the paper's → bits; the paper's setting first."""
MARKERS = {"stride": "o", "value-norm": "s"}
READING = "likelihood, mean"
"""What the readout copies, and where its state is read: what calibration chooses for language models."""
LEAST_TEACHER_GAIN = 1.0
"""Points of nDCG@5 the fused teacher must gain for a share of them to mean something."""
_TEACHER = "likelihood"


def main() -> None:
    """Measure every setting of the backbones named, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--documents", type=Path, help="for a folder: documents/, queries.jsonl, qrels.trec")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=Path("build/real_documents"),
        help="where benchmarks.quality has run those questions",
    )
    parser.add_argument("--work", type=Path, default=Path("build/compression"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", action="store_true", help="draw the rows that were written before")
    options = parser.parse_args()
    if options.figure:
        draw_compression()
        return
    rows: list[dict[str, Any]] = []
    for backbone in options.backbone or BACKBONES:
        if Path(backbone).is_dir():
            rows += measure_text(options, backbone)
        else:
            with Bar() as bar:
                rows += measure(drawn_experiment(options.work, backbone, bar), backbone)
    print(compression_table(rows))
    publish({"candidates": 20, "paper": ", ".join(PAPER), "rows": rows}, options.out)


def drawn_experiment(work: Path, backbone: str, bar: Bar) -> Experiment:
    """The first family of the miniature, behind its first retriever, with one backbone."""
    names = [plan.name for plan in PLANS if plan.family == FAMILY]
    settings = ExperimentSettings(
        families=tuple(load_miniature(work / "corpora", corpora=frozenset(names))),
        backbones=(backbone,),
        retrievers=RETRIEVERS[:1],
        baselines="miniature",
        device="cpu",
        depths=(),
        full_pass_every=NEVER_TIMED,
    )
    return Experiment(settings, work / "stages", bar)


def measure(experiment: Experiment, backbone: str) -> list[dict[str, Any]]:
    """One row for each setting of one backbone."""
    [retriever] = experiment.settings.retrievers
    analysis, keys = Analysis(experiment), experiment.corpus_keys(0)
    scored = [analysis.scored(corpus_key, retriever, backbone) for corpus_key in keys]
    default = experiment.models.exit_layer(experiment.models.load_backbone(backbone))
    settings = [
        StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), exit_layer)
        for exit_layer, of_depth in ((default, SETTINGS), (default - 1, SHALLOWER_SETTINGS))
        for keep, formats in of_depth.items()
        for bits in formats
    ]
    corpora: dict[StorageSetting, list[ScoredCorpus]] = {setting: [] for setting in settings}
    nbytes: dict[StorageSetting, list[float]] = {setting: [] for setting in settings}
    for corpus_key, corpus_scores in zip(keys, scored, strict=True):
        folder, corpus = experiment.paths(corpus_key).backbone(backbone), experiment.corpus(corpus_key)
        page_ids = experiment.pools(corpus_key, retriever).page_ids[:, : experiment.settings.candidates]
        experiment.progress.start(f"{corpus.name}: {len(settings)} settings", 0)
        results = run_settings(
            folder / "compression",
            experiment.paths(corpus_key).store(backbone),
            [query.text for query in corpus.queries],
            page_ids,
            partial(experiment.models.backbone_for, folder, backbone),
            settings,
            done=experiment.progress.advance,
        )
        for setting, (states, page_bytes) in results.items():
            flat = states.reshape(-1, states.shape[-1]).astype(float)
            corpora[setting].append(replace(corpus_scores, states=flat))
            nbytes[setting].append(page_bytes)
    times = _time(experiment, backbone, settings)
    return [
        {
            "backbone": Path(backbone).name,
            "corpus_family": f"miniature {FAMILY}",
            **_describe(setting, statistics.mean(nbytes[setting])),
            **rank_quality(corpora[setting]),
            "pass_time_ratio": round(times[setting] / times[settings[0]], 3),
        }
        for setting in settings
    ]


def _describe(setting: StorageSetting, page_bytes: float) -> dict[str, Any]:
    kept = {"keep": str(setting.keep), "bits": str(setting.numbers), "exit_layer": setting.exit_layer}
    return {**kept, "bytes_per_page": round(page_bytes)}


def rank_quality(corpora: list[ScoredCorpus]) -> dict[str, float]:
    """Agreement with the full model, nDCG@5 fused, and the share of the fused cross encoder's gain."""
    held_out, _ = hold_out_each(corpora)
    ndcg = [{name: values.mean() for name, values in each.ndcg_by_method().items()} for each in held_out]
    means = {name: statistics.mean(float(each[name]) for each in ndcg) for name in ndcg[0]}
    kept = recovery(means["retriever"], means["ridgerank"], means["cross encoder, fused"])
    return {
        "agreement": round(statistics.mean(each.agreement for each in held_out), 3),
        "ndcg_at_5": round(means["ridgerank"], 2),
        "recovery_percent": round(kept, 1),
    }


def _time(
    experiment: Experiment, backbone: str, settings: Sequence[StorageSetting]
) -> dict[StorageSetting, float]:
    corpus_key = experiment.corpus_keys(0)[0]
    model = experiment.models.load_backbone(backbone)
    with PageStore.open(experiment.paths(corpus_key).store(backbone)) as store:
        page_ids = store.page_ids()[:_TIMED_PAGES]
        batches = rerender_pages(store, page_ids, max_pixels=model.page_budget)
        pages = list(islice((page for batch in batches for page in batch), _TIMED_PAGES))
    query = experiment.corpus(corpus_key).queries[0].text
    return time_settings(model, pages, query, settings)


def run_settings(
    folder: Path,
    store: str,
    queries: Sequence[str],
    page_ids: NDArray[np.str_],
    backbone: Callable[[], Backbone],
    settings: Sequence[StorageSetting],
    *,
    done: Callable[[int], None],
) -> dict[StorageSetting, tuple[NDArray[np.float32], float]]:
    """States (queries, candidates, dim) and mean bytes per page, by setting.

    `page_ids` is (queries, candidates). Results stay in `folder` by setting: an interrupted run goes on, and
    only new settings are computed.
    """
    pages = np.unique(page_ids)
    digest = short_digest([*queries, *page_ids.ravel().tolist()])
    folders = {setting: folder / short_digest([str(setting)]) / digest for setting in settings}
    for start in range(0, len(pages), _PAGES_PER_PART):
        part = pages[start : start + _PAGES_PER_PART].tolist()
        paths = {setting: folders[setting] / f"{start:06d}.npz" for setting in settings}
        missing = [setting for setting, path in paths.items() if not path.exists()]
        if missing:
            model = backbone()
            with PageStore.open(store) as opened:
                batches = rerender_pages(opened, part, max_pixels=model.page_budget)
                arrays = _run_part(model, chain.from_iterable(batches), queries, page_ids, missing)
            for setting in missing:
                save_arrays(paths[setting], arrays[setting])
        done(len(part))
    return {setting: _collect(folders[setting], page_ids.shape) for setting in settings}


def store_page(prefix: Prefix, setting: StorageSetting, shared: SharedPositions | None) -> PackedPrefix:
    """The page as a store of this setting holds it; `prefix` has at least its layers."""
    return compress(prefix.layers(0, setting.exit_layer), setting.keep, setting.numbers, shared)


def _run_part(
    model: Backbone,
    pages: Iterable[Page],
    queries: Sequence[str],
    page_ids: NDArray[np.str_],
    settings: Sequence[StorageSetting],
) -> dict[StorageSetting, Arrays]:
    """Each page encoded once, stored in every way, and read by the queries that have it as a candidate."""
    shared = {setting: encode_shared(model, setting) for setting in settings}
    depth = max(setting.exit_layer for setting in settings)
    positions: list[list[int]] = []
    states: dict[StorageSetting, list[NDArray[np.float32]]] = {setting: [] for setting in settings}
    nbytes: dict[StorageSetting, list[int]] = {setting: [] for setting in settings}
    for page in pages:
        [prefix] = model.encode([model.content(page)], exit_layer=depth)
        of_page = np.argwhere(page_ids == page.page_id)
        texts = [queries[number] for number in of_page[:, 0].tolist()]
        positions += of_page.tolist()
        for setting in settings:
            packed = store_page(prefix, setting, shared[setting])
            stored = StoredPrefixes([packed], device=model.device)
            states[setting].append(model.states(texts, stored).cpu().numpy())
            nbytes[setting] += [block_shape(packed).nbytes] * len(of_page)
    candidates = np.array(positions, dtype=np.int64)
    return {
        setting: {
            "candidates": candidates,
            "states": np.concatenate(states[setting]),
            "nbytes": np.array(nbytes[setting]),
        }
        for setting in settings
    }


def _collect(folder: Path, shape: tuple[int, ...]) -> tuple[NDArray[np.float32], float]:
    parts = [dict(np.load(path)) for path in sorted(folder.glob("*.npz"))]
    candidates, states, nbytes = (
        np.concatenate([part[name] for part in parts]) for name in ("candidates", "states", "nbytes")
    )
    in_order = np.empty((*shape, states.shape[-1]), dtype=np.float32)
    in_order[tuple(candidates.T)] = states
    return in_order, float(nbytes.mean())


def time_settings(
    backbone: Backbone, pages: Sequence[Page], query: str, settings: Sequence[StorageSetting]
) -> dict[StorageSetting, float]:
    """Median seconds of a query over these pages, by setting, the settings taking turns."""
    shared = {setting: encode_shared(backbone, setting) for setting in settings}
    depth = max(setting.exit_layer for setting in settings)
    encoded = backbone.encode([backbone.content(page) for page in pages], exit_layer=depth)
    batches = {
        setting: StoredPrefixes(
            [store_page(prefix, setting, shared[setting]) for prefix in encoded],
            device=backbone.device,
        )
        for setting in settings
    }
    runs = {
        str(setting): (lambda batch=batch: backbone.states([query], batch))
        for setting, batch in batches.items()
    }
    seconds = interleaved_seconds(runs, repeats=_REPEATS)
    return {setting: seconds[str(setting)] for setting in settings}


def measure_text(options: argparse.Namespace, backbone: str) -> list[dict[str, Any]]:
    """One row for each setting of one language model."""
    documents: Path = options.documents
    folder = read_question_folder(*paths_of(documents), ocr_cache=options.checkpoints / "ocr")
    model = load_backbone(backbone, page_text="head 512")
    checkpoints = checkpoint_folder(options.checkpoints, folder, backbone)
    questions = [
        question
        for question in folder.questions[:_QUESTIONS]
        if teacher_path(checkpoints, question.query_id).exists()
    ]
    if len({question.kind for question in questions}) < 2:
        raise DatasetError(f"{checkpoints}: expected questions of two kinds; run benchmarks.quality first")
    paper_exit = default_exit_layer(model.geometry.layers)
    settings = [
        StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), round(depth * paper_exit))
        for (keep, depth), formats in TEXT_SETTINGS.items()
        for bits in formats
    ]
    run_questions(model, folder, questions, checkpoints / "compression", settings)
    table = load_questions(questions, folder.qrels, checkpoints, [])
    table = _with_states(table, checkpoints / "compression", settings)
    pages, _ = find_candidates(questions[0], folder.documents[questions[0].document])
    seconds = time_settings(model, pages[:_TIMED_PAGES], questions[0].text, settings)
    return [
        {
            "backbone": Path(backbone).name,
            "corpus_family": documents.name,
            **_describe(setting, float(table.per_question[f"{setting}, bytes"].mean())),
            **_text_quality(table, folder, setting),
            "pass_time_ratio": round(seconds[setting] / seconds[settings[0]], 3),
        }
        for setting in settings
    ]


def run_questions(
    model: Backbone,
    folder: QuestionFolder,
    questions: Sequence[Question],
    checkpoints: Path,
    settings: Sequence[StorageSetting],
) -> None:
    """States of every question in every setting, document by document; what is there is not run again."""
    shared = {setting: encode_shared(model, setting) for setting in settings}
    depth = max(setting.exit_layer for setting in settings)
    for document, asked in groupby(questions, key=lambda question: question.document):
        missing = [
            (question, setting)
            for question in asked
            for setting in settings
            if not _path(checkpoints, question.query_id, setting).exists()
        ]
        if not missing:
            continue
        pages = folder.documents[document]
        candidates = {question.query_id: find_candidates(question, pages)[0] for question, _ in missing}
        needed = {page.page_id: page for shown in candidates.values() for page in shown}
        encoded = {
            page_id: model.encode([model.content(page)], exit_layer=depth)[0]
            for page_id, page in needed.items()
        }
        missing.sort(key=lambda pair: settings.index(pair[1]))
        for setting, of_setting in groupby(missing, key=lambda pair: pair[1]):
            packed = {
                page_id: store_page(prefix, setting, shared[setting]) for page_id, prefix in encoded.items()
            }
            for question, _ in of_setting:
                stored = [packed[page.page_id] for page in candidates[question.query_id]]
                states = model.both_states(question.text, StoredPrefixes(stored))
                arrays: Arrays = {
                    f"{setting}, {state}": values.cpu().numpy() for state, values in states.items()
                }
                arrays[f"{setting}, bytes"] = np.array(np.mean([block_shape(p).nbytes for p in stored]))
                save_arrays(_path(checkpoints, question.query_id, setting), arrays)
        print(f"{document}: {len(missing)} passes", flush=True)


def _with_states(
    table: QuestionTable, checkpoints: Path, settings: Sequence[StorageSetting]
) -> QuestionTable:
    columns, per_question = dict(table.columns), dict(table.per_question)
    for setting in settings:
        parts = []
        for query in table.queries:
            with np.load(_path(checkpoints, query, setting)) as arrays:
                parts.append(dict(arrays))
        for name in parts[0]:
            if name.endswith(", bytes"):
                per_question[name] = np.array([float(part[name]) for part in parts])
            else:
                columns[name] = np.concatenate([part[name] for part in parts]).astype(np.float64)
    return replace(table, columns=columns, per_question=per_question)


def _text_quality(
    table: QuestionTable, folder: QuestionFolder, setting: StorageSetting
) -> dict[str, float | None]:
    """Held-out agreement with the teacher, nDCG@5 fused, and the share kept of the fused teacher's gain."""
    transferred = transfer_readouts(table, str(setting))
    qrels = {query: folder.qrels[query] for query in table.queries}
    teacher, _ = fuse_by_judgements(table, _TEACHER)
    base, ours, full = (
        float(question_ndcg(table, scores, qrels).mean())
        for scores in (table.columns["bm25"], transferred.fused[f"{READING}, {JUDGED}"], teacher)
    )
    r = correlation(transferred.scores[READING], table.columns[_TEACHER], table.lists)
    kept = round(recovery(base, ours, full), 1) if full - base >= LEAST_TEACHER_GAIN else None
    return {"agreement": round(float(r.mean()), 3), "ndcg_at_5": round(ours, 2), "recovery_percent": kept}


def _path(folder: Path, query_id: str, setting: StorageSetting) -> Path:
    return folder / f"{query_id}.{short_digest([str(setting)])}.npz"


def draw_compression() -> None:
    """One panel for each backbone: agreement with the full model over bytes, the paper's setting marked."""
    mpl.use("Agg")
    rows = json.loads(Path("results/compression.json").read_text())["rows"]
    backbones = list(dict.fromkeys(row["backbone"] for row in rows))
    figure, panels = plt.subplots(
        1, len(backbones), figsize=(3.6 * len(backbones), 3.6), layout="constrained", squeeze=False
    )
    for axes, backbone in zip(panels[0], backbones, strict=True):
        draw_settings(axes, [row for row in rows if row["backbone"] == backbone])
        axes.set_title(backbone)
    panels[0][0].set_ylabel("held-out agreement r with the full model")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.savefig("docs/compression.png", dpi=120)


def draw_settings(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Settings of one backbone by rule, those that nothing smaller beats joined by a line."""
    sizes = [row["bytes_per_page"] / rows[0]["bytes_per_page"] for row in rows]
    points = [(size, row["agreement"], row["keep"].split()[0]) for size, row in zip(sizes, rows, strict=True)]
    for rule, marker in MARKERS.items():
        chosen = [(size, agreement) for size, agreement, of_rule in points if of_rule == rule]
        x, y = zip(*chosen, strict=True)
        axes.scatter(x, y, marker=marker, s=22, label=rule)
    frontier: list[tuple[float, float]] = []
    for size, agreement, _ in sorted(points, key=lambda point: (point[0], -point[1])):
        if not frontier or agreement > frontier[-1][1]:
            frontier.append((size, agreement))
    axes.plot(*zip(*frontier, strict=True), color="0.6", linewidth=1, zorder=0)
    paper = rows[0]["agreement"]
    axes.scatter([1.0], [paper], s=140, facecolors="none", edgecolors="C3", label="the paper's")
    axes.axhline(paper, color="C3", linewidth=0.6, linestyle=":")
    axes.set(xlabel="bytes of a page, the paper's = 1")


if __name__ == "__main__":
    main()
