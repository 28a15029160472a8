"""Intervals on real documents from one quality per question, drawing whole documents.

Questions about one document share its pages and its difficulty, so whole documents are drawn with
replacement, each with all of its questions.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ridgerank.atomic import replace_text_file
from ridgerank.errors import DatasetError
from ridgerank.ragged import Floats
from ridgerank.records import TARGETS

MEASURE = "nDCG@5"
BASE = "bm25"
OTHER_FOLDER = "other folder: "
"""Before the name of a method whose readout, penalty and weight come from another folder of documents."""
SELECTED = "taken by measure"
"""The reading that calibration selects without judgements."""
RESAMPLES = 10000
LEAST_RECOVERY = 0.7
_CERTAIN = 0.99
"""Share of the draws in which a teacher must gain for a share of its gain to have an interval."""
_KEYS = ("query", "document", "kind")
_DIGITS = 2


@dataclass(frozen=True, slots=True, eq=False)
class QuestionQualities:
    """nDCG@5 of every method on every question, in percent."""

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    kinds: tuple[str, ...]
    qualities: Mapping[str, Floats]
    """Method → (questions,), rounded as the file has them."""

    def select(self, kind: str) -> "QuestionQualities":
        """The questions about documents of one kind."""
        members = [number for number, each in enumerate(self.kinds) if each == kind]
        return QuestionQualities(
            queries=tuple(self.queries[number] for number in members),
            documents=tuple(self.documents[number] for number in members),
            kinds=tuple(kind for _ in members),
            qualities={name: values[members] for name, values in self.qualities.items()},
        )


def round_qualities(qualities: Mapping[str, Floats]) -> dict[str, Floats]:
    """The values as they are written: what is computed before and after writing is then the same."""
    return {name: np.round(values, _DIGITS) for name, values in qualities.items()}


def write_questions(questions: QuestionQualities, path: Path) -> None:
    """One line for each question, no text of it."""
    with replace_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*_KEYS, *questions.qualities])
        columns = zip(*questions.qualities.values(), strict=True)
        keys = zip(questions.queries, questions.documents, questions.kinds, strict=True)
        for key, values in zip(keys, columns, strict=True):
            writer.writerow([*key, *(f"{value:.{_DIGITS}f}" for value in values)])


def read_written_questions(path: Path) -> QuestionQualities:
    """Read what `write_questions` wrote; a file of another kind is refused."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file))
        columns = list(zip(*rows, strict=True))
        qualities = {
            name: np.array(values, dtype=np.float64)
            for name, values in zip(header[len(_KEYS) :], columns[len(_KEYS) :], strict=True)
        }
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: {error}; wanted a CSV that `real_documents --out` wrote") from error
    if tuple(header[: len(_KEYS)]) != _KEYS or BASE not in qualities:
        raise DatasetError(
            f"{path}: found the columns {', '.join(header[:4])}; wanted {', '.join(_KEYS)}, {BASE} and other "
            "methods, as `real_documents --out` writes them"
        )
    return QuestionQualities(columns[0], columns[1], columns[2], qualities)


def resample_documents(values: Floats, documents: Sequence[str]) -> Floats:
    """Means over the questions of documents drawn with replacement: (resamples,).

    The same draws for all rows, so that differences and ratios of rows can be taken draw by draw.
    """
    names, owner = np.unique(np.array(documents), return_inverse=True)
    totals = np.bincount(owner, weights=values)
    sizes = np.bincount(owner)
    drawn = np.random.default_rng(0).multinomial(
        len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES
    )
    means: Floats = (drawn @ totals) / (drawn @ sizes)
    return means


def summarize(questions: QuestionQualities) -> dict[str, dict[str, Any]]:
    """Method → mean, gain over the retriever, its 95 % interval over documents."""
    table = {}
    for name, values in questions.qualities.items():
        gains = values - questions.qualities[BASE]
        low, high = np.quantile(resample_documents(gains, questions.documents), [0.025, 0.975])
        table[name] = {
            MEASURE: round(float(values.mean()), 2),
            "gain": round(float(gains.mean()), 2),
            "gain_interval": [round(float(low), 2), round(float(high), 2)],
        }
    return table


def summarize_recovery(questions: QuestionQualities) -> dict[str, dict[str, Any]]:
    """Fused readout → share of the gain of the same target's fused teacher, with its interval over documents.

    A share of next to no gain means nothing: its interval is None where the teacher gains nothing in more
    than one draw of documents in a hundred. The difference in points has an interval in any case.
    """
    base = questions.qualities[BASE]
    recovered = {}
    for name, values in questions.qualities.items():
        teacher = find_teacher(name)
        if teacher is None or teacher not in questions.qualities:
            continue
        gains, teacher_gains = values - base, questions.qualities[teacher] - base
        drawn = resample_documents(gains, questions.documents)
        drawn_teacher = resample_documents(teacher_gains, questions.documents)
        gained = float(teacher_gains.mean())
        low, high = np.quantile(drawn - drawn_teacher, [0.025, 0.975])
        recovered[name] = {
            "teacher": teacher,
            "recovery": round(float(gains.mean()) / gained, 3) if gained > 0 else None,
            "recovery_interval": _ratio_interval(drawn, drawn_teacher),
            "difference": round(float((gains - teacher_gains).mean()), 2),
            "difference_interval": [round(float(low), 2), round(float(high), 2)],
            "resamples_above_70_percent": round(float((drawn > LEAST_RECOVERY * drawn_teacher).mean()), 3),
        }
    return recovered


def find_teacher(name: str) -> str | None:
    """The row of the teacher that a fused readout is compared with; None for what is no fused readout."""
    folder = OTHER_FOLDER if name.startswith(OTHER_FOLDER) else ""
    parts = name.removeprefix(folder).split(", ")
    if parts[0] == BASE or parts[0].startswith(("teacher", "cross encoder")):
        return None
    if parts[1] == SELECTED:
        # The selected target may differ from kind to kind; its teacher is the one that ranks.
        return f"{folder}teacher: likelihood, closed form" if len(parts) > 2 else None
    fused = parts[1] in TARGETS and len(parts) > 3
    return f"{folder}teacher: {parts[1]}, closed form" if fused else None


def _ratio_interval(drawn: Floats, drawn_teacher: Floats) -> list[float] | None:
    positive = drawn_teacher > 0
    if positive.mean() < _CERTAIN:
        return None
    low, high = np.quantile(drawn[positive] / drawn_teacher[positive], [0.025, 0.975])
    return [round(float(low), 3), round(float(high), 3)]


def format_summary(questions: QuestionQualities) -> str:
    """A line for every method with its gain and its recovery."""
    recovered = summarize_recovery(questions)
    count = len(set(questions.documents))
    lines = [f"{len(questions.queries)} questions, 95 % intervals by drawing whole documents, of {count}:"]
    for name, row in summarize(questions).items():
        low, high = row["gain_interval"]
        line = f"{name:68} {row[MEASURE]:6.1f}   gain {row['gain']:+5.1f} [{low:+.1f}, {high:+.1f}]"
        if name in recovered and recovered[name]["recovery"] is not None:
            line += f"   {format_recovery(recovered[name])}"
        lines.append(line)
    return "\n".join(lines)


def format_recovery(row: Mapping[str, Any]) -> str:
    """A recovery in percent with its interval."""
    if row["recovery"] is None:
        return "none: its teacher gains nothing"
    if "recovery_interval" not in row:
        return f"{100 * row['recovery']:.0f} %"
    if row["recovery_interval"] is None:
        return f"{100 * row['recovery']:.0f} % [no bound]"
    low, high = row["recovery_interval"]
    return f"{100 * row['recovery']:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
