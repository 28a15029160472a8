"""Quality over bytes for a language model that reads page text, over questions `real_documents` has run.

The teacher's targets, candidates and judgements are those of its checkpoints. Each page is encoded once for
all settings; the states of every question and setting stay beside the checkpoints.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compression_states import time_settings
from benchmarks.real_documents_checkpoints import (
    QuestionTable,
    checkpoint_folder,
    load_questions,
    teacher_path,
)
from benchmarks.real_documents_questions import (
    Question,
    QuestionFolder,
    find_candidates,
    paths_of,
    read_question_folder,
)
from benchmarks.real_documents_report import question_ndcg
from benchmarks.real_documents_transfer import JUDGED, fuse_by_judgements, transfer_readouts
from experiments.protocols.recovery import recovery
from experiments.reproduce.stages.checkpoint import Arrays, save_arrays, short_digest
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.errors import DatasetError
from ridgerank.fusion.correlations import correlation
from ridgerank.store.layout import block_shape
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.pruning import Keep
from ridgerank.store.setting_compressor import SettingCompressor
from ridgerank.store.storage_setting import StorageSetting, default_exit_layer
from ridgerank.store.stored_prefixes import StoredPrefixes

PAPER = ("stride 1/3", "8", 1.0)
SETTINGS = (
    PAPER,
    ("stride 1/3", "8", 2 / 3),
    ("stride 1/3", "4 group 32", 1.0),
    ("stride 1/3", "4/2 group 32", 1.0),
    ("value-norm 1/3", "8", 1.0),
    ("stride 1/2", "4 group 32", 2 / 3),
    ("stride 1/2", "4 group 32", 4 / 7),
    ("value-norm 1/2", "4 group 32", 4 / 7),
    ("value-norm 1/2", "4/2 group 32", 4 / 7),
    ("value-norm 1/2", "4/2", 4 / 7),
    ("value-norm 1/2", "3/2", 4 / 7),
    ("value-norm 1/2", "2 group 32", 4 / 7),
    ("value-distance 1/2", "4 group 32", 4 / 7),
    ("value-norm 1/3", "4 group 32", 4 / 7),
    ("value-norm 1/3", "4/2 group 32", 4 / 7),
    ("value-norm 1/3", "4/2", 4 / 7),
    ("stride 1", "4 group 32", 2 / 3),
    ("stride 1", "4 group 32", 1 / 2),
    ("stride 1", "3 group 32", 4 / 7),
    ("stride 1", "4/2 group 32", 1 / 2),
    ("stride 1", "2 group 32", 4 / 7),
    ("stride 1", "4/1", 1 / 2),
    ("stride 1", "3/1", 4 / 7),
    ("stride 1", "3/2", 1 / 2),
    ("stride 2/3", "4/1", 4 / 7),
    ("stride 1/2", "4/1", 2 / 3),
    ("stride 1/2", "4/1", 4 / 7),
    ("value-norm 1/2", "4/1", 4 / 7),
    ("value-norm 1/2", "3/1", 4 / 7),
)
"""Positions, bits and the exit layer as a part of the paper's; the paper's setting first."""
READING = "likelihood, mean"
"""What the readout copies, and where its state is read: what calibration chooses for language models."""
LEAST_TEACHER_GAIN = 1.0
"""Points of nDCG@5 the fused teacher must gain for a share of them to mean something."""
_TEACHER = "likelihood"
_TIMED_PAGES = 20


def measure_text(options: argparse.Namespace, backbone: str) -> list[dict[str, Any]]:
    """One row for each setting of one language model."""
    documents: Path = options.documents
    folder = read_question_folder(*paths_of(documents), ocr_cache=options.checkpoints / "ocr")
    model = load_backbone(backbone, page_text="head 512")
    checkpoints = checkpoint_folder(options.checkpoints, folder, backbone)
    questions = [
        question
        for question in folder.questions[: options.questions]
        if teacher_path(checkpoints, question.query_id).exists()
    ]
    if len({question.kind for question in questions}) < 2:
        raise DatasetError(f"{checkpoints}: questions of two kinds are wanted; run real_documents first")
    paper_exit = default_exit_layer(model.geometry.layers)
    settings = [
        StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), round(depth * paper_exit))
        for keep, bits, depth in SETTINGS
    ]
    run_questions(model, folder, questions, checkpoints / "compression", settings)
    table = load_questions(questions, folder.qrels, checkpoints, [])
    table = _with_states(table, checkpoints / "compression", settings)
    seconds = _time(model, folder, questions[0], settings, repeats=options.repeats)
    return [
        {
            "backbone": Path(backbone).name,
            "corpus_family": documents.name,
            "keep": str(setting.keep),
            "bits": str(setting.numbers),
            "exit_layer": setting.exit_layer,
            "bytes_per_page": round(float(table.per_question[f"{setting}, bytes"].mean())),
            **_quality(table, folder, setting),
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
    compressor = SettingCompressor(model, settings)
    depth = max(setting.exit_layer for setting in settings)
    for document, asked in groupby(questions, key=lambda question: question.document):
        missing = [
            (question, setting)
            for question in asked
            for setting in settings
            if not _path(checkpoints, question, setting).exists()
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
                page_id: compressor.compress(encoded[page_id], page, setting)
                for page_id, page in needed.items()
            }
            for question, _ in of_setting:
                stored = [packed[page.page_id] for page in candidates[question.query_id]]
                states = model.both_states(question.text, StoredPrefixes.of(stored, join_layer=0))
                arrays: Arrays = {
                    f"{setting}, {state}": values.cpu().numpy() for state, values in states.items()
                }
                arrays[f"{setting}, bytes"] = np.array(np.mean([block_shape(p).nbytes for p in stored]))
                save_arrays(_path(checkpoints, question, setting), arrays)
        print(f"{document}: {len(missing)} passes", flush=True)


def _with_states(
    table: QuestionTable, checkpoints: Path, settings: Sequence[StorageSetting]
) -> QuestionTable:
    columns, per_question = dict(table.columns), dict(table.per_question)
    for setting in settings:
        parts = []
        for query in table.queries:
            with np.load(_query_path(checkpoints, query, setting)) as arrays:
                parts.append(dict(arrays))
        for name in parts[0]:
            if name.endswith(", bytes"):
                per_question[name] = np.array([float(part[name]) for part in parts])
            else:
                columns[name] = np.concatenate([part[name] for part in parts]).astype(np.float64)
    return replace(table, columns=columns, per_question=per_question)


def _quality(
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


def _time(
    model: Backbone,
    folder: QuestionFolder,
    question: Question,
    settings: Sequence[StorageSetting],
    *,
    repeats: int,
) -> dict[StorageSetting, float]:
    pages, _ = find_candidates(question, folder.documents[question.document])
    return time_settings(model, pages[:_TIMED_PAGES], question.text, settings, repeats=repeats)


def _path(folder: Path, question: Question, setting: StorageSetting) -> Path:
    return _query_path(folder, question.query_id, setting)


def _query_path(folder: Path, query_id: str, setting: StorageSetting) -> Path:
    return folder / f"{query_id}.{short_digest([str(setting)])}.npz"
