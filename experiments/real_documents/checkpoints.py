"""The checkpoints of `real_documents`: where they are, which questions are complete, all as arrays."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from experiments.real_documents.questions import Question, QuestionFolder, fingerprint
from ridgerank.calibration.fit import CalibrationLists
from ridgerank.errors import DatasetError
from ridgerank.lineage import Keep
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import STATES, TARGETS, Query, State, Target
from ridgerank.trec import Qrels

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuestionTable:
    """All questions laid end to end."""

    queries: list[str]
    documents: list[str]
    """The document each question is about."""
    kinds: np.ndarray
    """(questions,)."""
    lists: Ragged
    references: list[str]
    columns: dict[str, np.ndarray]
    """Scores (candidates,) and states (candidates, dim) by name."""
    per_question: dict[str, Floats]
    """Bytes per page (questions,) by name."""
    relevance: Floats

    def kinds_in_order(self) -> list[str]:
        """Each kind once."""
        return list(dict.fromkeys(self.kinds.tolist()))

    def states(self, keep: str) -> dict[State, Floats]:
        """The states over pages pruned by `keep`, by where they were read."""
        return {state: self.columns[f"{keep}, {state}"] for state in STATES}

    def observed(self, without_kind: str, keep: str, *, judged: bool) -> CalibrationLists:
        """The questions of all kinds but one, as calibration sees them."""
        observed = self.kinds != without_kind
        lists, members = self.lists.select(observed)
        targets: dict[Target, Floats] = {target: self.columns[target][members] for target in TARGETS}
        return CalibrationLists(
            queries=tuple(
                Query(query, "", kind)
                for query, kind in compress(zip(self.queries, self.kinds.tolist(), strict=True), observed)
            ),
            page_ids=tuple(compress(self.references, members)),
            lists=lists,
            retriever=self.columns["bm25"][members],
            targets=targets,
            states={state: states[members] for state, states in self.states(keep).items()},
            relevance=self.relevance[members] if judged else None,
        )


def checkpoint_folder(
    root: Path, folder: QuestionFolder, backbone: str, *, page_text: str = "head 512"
) -> Path:
    """Where the questions of a folder lie, run with one model over so much of a page's text."""
    name = f"{Path(backbone).name}-{page_text.replace(' ', '-')}"
    return root / f"{name}-{fingerprint(folder.queries, folder.documents, backbone)}"


def teacher_path(folder: Path, query_id: str) -> Path:
    """The checkpoint with a question's candidates, retriever scores and targets."""
    return folder / f"{query_id}.npz"


def stored_path(folder: Path, query_id: str, keep: Keep) -> Path:
    """The checkpoint with a question's states over pages that were pruned by `keep`."""
    return folder / f"{query_id}.{keep.rule}-{float(keep.fraction):.3f}.npz"


def cross_path(folder: Path, query_id: str) -> Path:
    """The checkpoint with the scores of the trained cross encoder."""
    return folder / f"{query_id}.cross.npz"


def complete_questions(questions: Sequence[Question], folder: Path, keeps: Sequence[Keep]) -> list[Question]:
    """The questions with a teacher and with states for every rule; incomplete ones are counted and named."""
    started = [question for question in questions if teacher_path(folder, question.query_id).exists()]
    if not started:
        raise DatasetError(f"{folder}: no question has been asked yet; run without --evaluate")
    missing = {
        question.query_id: [
            str(keep) for keep in keeps if not stored_path(folder, question.query_id, keep).exists()
        ]
        for question in started
    }
    incomplete = {query_id: rules for query_id, rules in missing.items() if rules}
    complete = [question for question in started if question.query_id not in incomplete]
    if incomplete:
        query_id, rules = next(iter(incomplete.items()))
        example = f"{query_id} first, which lacks {', '.join(rules)}"
        message = f"{len(incomplete)} of {len(started)} questions have no stored states yet, {example}"
        if len({question.kind for question in complete}) < 2:
            raise DatasetError(f"{folder}: {message}; run without --evaluate to complete them")
        logger.warning("%s; left out, run without --evaluate to complete them", message)
    return complete


def load_questions(
    questions: Sequence[Question], qrels: Qrels, folder: Path, keeps: Sequence[str]
) -> QuestionTable:
    """Read the checkpoints of these questions; a column that only some of them have is left out."""
    parts: dict[str, list[np.ndarray]] = {}
    per_question: dict[str, list[float]] = {}
    lengths, queries = [], [question.query_id for question in questions]
    for query in queries:
        arrays = _read_arrays(query, folder, keeps)
        lengths.append(len(arrays["references"]))
        for name, values in arrays.items():
            if values.ndim:
                parts.setdefault(name, []).append(values)
            else:
                per_question.setdefault(name, []).append(float(values))
    whole = {name: np.concatenate(rows) for name, rows in parts.items() if len(rows) == len(queries)}
    references = whole.pop("references").tolist()
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in whole.items()}
    lists = Ragged.of_lengths(lengths)
    owner = [queries[number] for number in lists.list_numbers()]
    relevance = np.array(
        [float(qrels.get(query, {}).get(page, 0) > 0) for query, page in zip(owner, references, strict=True)]
    )
    return QuestionTable(
        queries=queries,
        documents=[question.document for question in questions],
        kinds=np.array([question.kind for question in questions]),
        lists=lists,
        references=references,
        columns=columns,
        per_question={name: np.array(values) for name, values in per_question.items()},
        relevance=relevance,
    )


def _read_arrays(query: str, folder: Path, keeps: Sequence[str]) -> dict[str, np.ndarray]:
    """All arrays of one question; the cross encoder's scores only where they were saved."""
    paths = [teacher_path(folder, query), *(stored_path(folder, query, Keep.parse(keep)) for keep in keeps)]
    if (scored := cross_path(folder, query)).exists():
        paths.append(scored)
    arrays: dict[str, np.ndarray] = {}
    for path in paths:
        with np.load(path) as checkpoint:
            arrays |= dict(checkpoint)
    return arrays
