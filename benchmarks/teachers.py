r"""Any teacher, measured: one model's states, another model's scores as the target of its readout.

    python -m benchmarks.teachers --questions DIR --checkpoints DIR [--work DIR] [--out FILE]

Two students. `mini-qwen` on the drawn corpora, taught by itself and by `mini-glm`, by the protocol of
`benchmarks.miniature`. And a text model on real documents, taught by its own likelihood and by a trained text
cross encoder: DIR has queries.jsonl and qrels.trec, and the checkpoints are what `benchmarks.real_documents
--cross-encoder` wrote for them. One kind of document is left out at a time; readout, penalty and weight come
from the other kinds, as calibration fits them. `--rehearse` prints the second part alone and writes nothing:
choose on one folder of questions, report on another.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.miniature import load_first_family, measure, settings_for, show, stages_folder
from benchmarks.real_documents_checkpoints import QuestionTable, complete_questions, load_questions
from benchmarks.real_documents_questions import read_questions
from benchmarks.real_documents_report import question_ndcg
from benchmarks.real_documents_resample import (
    BASE,
    MEASURE,
    QuestionQualities,
    resample_documents,
    round_qualities,
    summarize,
)
from benchmarks.real_documents_transfer import JUDGED, LABEL_FREE, arrange_teaching, fuse_by_judgements
from benchmarks.report import publish
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from ridgerank.calibration.selection import CalibrationData, select_readout
from ridgerank.cli.progress_bars import Bar
from ridgerank.fusion.correlations import correlation
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats
from ridgerank.runs.run import Qrels
from ridgerank.runs.trec import read_qrels
from ridgerank.shipped_models import RETRIEVERS
from ridgerank.store.pruning import Keep

KEEP = "stride 1/3"
STUDENT = "mini-qwen"
MINIATURE_TEACHERS = ("mini-qwen", "mini-glm")
TEXT_TEACHERS = {"likelihood": "its own likelihood", "cross": "the trained cross encoder"}
"""Column of the checkpoints → whose scores these are."""


def measure_miniature(work: Path) -> list[dict[str, Any]]:
    """The student behind each retriever, taught by itself and by the other model."""
    settings = settings_for(MINIATURE_TEACHERS, RETRIEVERS, load_first_family(work), KEEP)
    rows = []
    with Bar() as bar:
        analysis = Analysis(Experiment(settings, stages_folder(work, KEEP), bar))
        for retriever in RETRIEVERS:
            for teacher in MINIATURE_TEACHERS:
                rows.append({"teacher": teacher, **measure(analysis, STUDENT, retriever, teacher=teacher)})
                show(rows[-1])
    return rows


def measure_text(questions: QuestionTable, qrels: Qrels) -> dict[str, Any]:
    """The text model taught by each teacher: agreement with both, nDCG@5 with intervals over documents."""
    scores: dict[str, Floats] = {BASE: questions.columns["bm25"]}
    facts: dict[str, dict[str, Any]] = {}
    for column, teacher in TEXT_TEACHERS.items():
        scores[teacher] = questions.columns[column]
        scores[f"{teacher}, fused"], _ = fuse_by_judgements(questions, column)
        readout, fused, facts[teacher] = teach(questions, column)
        scores[f"readout of {teacher}"] = readout
        scores |= {f"readout of {teacher}, fused, {way}": values for way, values in fused.items()}
        facts[teacher]["held_out_r"] = {
            name: round(float(correlation(readout, questions.columns[other], questions.lists).mean()), 3)
            for other, name in TEXT_TEACHERS.items()
        }
    qualities = QuestionQualities(
        queries=tuple(questions.queries),
        documents=tuple(questions.documents),
        kinds=tuple(questions.kinds.tolist()),
        qualities=round_qualities(
            {name: question_ndcg(questions, values, qrels) for name, values in scores.items()}
        ),
    )
    table = summarize(qualities)
    for name, row in table.items():
        low, high = row["gain_interval"]
        print(f"{name:56} {row[MEASURE]:6.1f}   gain {row['gain']:+5.1f} [{low:+.1f}, {high:+.1f}]")
    return {
        "questions": len(qualities.queries),
        "documents": len(set(qualities.documents)),
        "intervals": "95 %, whole documents drawn with replacement",
        "keep": KEEP,
        "table": table,
        "readouts": facts,
        "difference": compare_readouts(qualities),
    }


def teach(questions: QuestionTable, column: str) -> tuple[Floats, dict[str, Floats], dict[str, Any]]:
    """Each kind scored by the readout that the other kinds fit to this column: alone, and fused."""
    count = questions.lists.members
    readout: Floats = np.zeros(count)
    fused: dict[str, Floats] = {way: np.zeros(count) for way in (JUDGED, LABEL_FREE)}
    weights: dict[str, dict[str, float]] = {way: {} for way in fused}
    states: dict[str, str] = {}
    for teaching in arrange_teaching(questions, None):
        selected = {
            way: select_readout(observe(questions, teaching.kind, column, judged=way == JUDGED)).selected
            for way in fused
        }
        chosen = selected[LABEL_FREE]
        states[teaching.kind] = chosen.option.state
        members = teaching.members
        readout[members] = questions.states(KEEP)[chosen.option.state][members] @ chosen.fit.vector
        for way, option in selected.items():
            vector, state = option.fit.vector, option.option.state
            scored = questions.states(KEEP)[state][members] @ vector
            weight = option.decision.deployed.weight
            retriever_scores = questions.columns["bm25"][members]
            fused[way][members] = fuse_scores(retriever_scores, scored, weight, teaching.lists)
            weights[way][teaching.kind] = round(weight, 3)
    return readout, fused, {"states": states, "weights": weights}


def observe(questions: QuestionTable, without_kind: str, column: str, *, judged: bool) -> CalibrationData:
    """What calibration sees of the other kinds, with this column as its only target."""
    data = questions.observed(without_kind, KEEP, judged=judged)
    _, members = questions.lists.select(questions.kinds != without_kind)
    return replace(data, targets={"teacher": questions.columns[column][members]})


def compare_readouts(qualities: QuestionQualities) -> dict[str, Any]:
    """The readout of the second teacher over that of the first, in points, question by question."""
    first, second = TEXT_TEACHERS.values()
    compared = {}
    for ending in ("", f", fused, {JUDGED}", f", fused, {LABEL_FREE}"):
        points = (
            qualities.qualities[f"readout of {second}{ending}"]
            - qualities.qualities[f"readout of {first}{ending}"]
        )
        low, high = np.quantile(resample_documents(points, qualities.documents), [0.025, 0.975])
        compared[f"readout{ending}"] = {
            "difference": round(float(points.mean()), 2),
            "difference_interval": [round(float(low), 2), round(float(high), 2)],
        }
    return compared


def read_table(folder: Path, checkpoints: Path) -> tuple[QuestionTable, Mapping[str, Mapping[str, int]]]:
    """The questions of a folder as they were run, and their judgements."""
    qrels = read_qrels(folder / "qrels.trec")
    complete = complete_questions(read_questions(folder / "queries.jsonl"), checkpoints, [Keep.parse(KEEP)])
    judged = [question for question in complete if qrels.get(question.query_id)]
    return load_questions(judged, qrels, checkpoints, [KEEP]), qrels


def main() -> None:
    """Measure both students, print tables, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=Path, required=True, help="a folder with queries and judgements")
    parser.add_argument("--checkpoints", type=Path, required=True, help="what real_documents wrote for them")
    parser.add_argument("--rehearse", action="store_true", help="the text model alone; writes nothing")
    parser.add_argument("--work", type=Path, default=Path("build/miniature"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    text = measure_text(*read_table(arguments.questions, arguments.checkpoints))
    if arguments.rehearse:
        publish(text, None)
        return
    result = {
        "text": {"folder": arguments.questions.name, **text},
        "miniature": {"keep": KEEP, "candidates": 20, "rows": measure_miniature(arguments.work)},
    }
    publish(result, arguments.out)


if __name__ == "__main__":
    main()
