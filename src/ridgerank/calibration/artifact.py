"""A calibration as a small file beside the store: the readout, the weight, and how both came about.

`NAME.safetensors` is all that ranking reads; `NAME.json` says the same to people and `NAME.png` shows it.
It is bound to the lineage of its store and to a retriever, sealed with a digest, and keeps the lists its
weight was estimated from: other judgements give another weight without any model.
"""

import hashlib
import json
import logging
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.errors import ArtifactError
from ridgerank.fusion.weight import WeightEstimate
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout import Readout, TargetReadout
from ridgerank.records import Query, ScoredPages, State, Target, to_json
from ridgerank.store.maintenance import Damage

logger = logging.getLogger(__name__)

FORMAT = "ridgerank-calibration-3"
DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TARGET_READOUT, _LIST_NAMES, _DIGEST = "target_readout", "list_names", "digest"
_LENGTHS, _SCORES, _RELEVANCE = "list_lengths", "list_scores", "list_relevance"
_METADATA_NAMES = {_LIST_NAMES, "format", "lineage", "fit", "facts", _DIGEST}

_PLAIN_FACTS = ("retriever", "retriever_identity", "retriever_source", "target", "state")

Record = TypeVar("Record", "WeightEstimate", "Diagnostics", "ReadoutOption")


def write_sealed(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write the file whole or not at all, its digest among the metadata."""
    from safetensors.numpy import save

    rows = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}  # it copies bytes
    with replace_file(path) as scratch:
        scratch.write_bytes(save(rows, {**metadata, _DIGEST: _digest(rows, metadata)}))


def read_sealed(
    path: Path, version: str, names: Collection[str] = _METADATA_NAMES
) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """The metadata and the tensors; a file of another version, or not as it was written, is refused."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path}: not a readable file of a readout ({error}); make it again") from error
    unknown = sorted(metadata.keys() - set(names))
    digest = metadata.pop(_DIGEST, None)
    if unknown or (digest is not None and digest != _digest(tensors, metadata)):
        raise ArtifactError(f"{path} is damaged: it is not as it was written; make it again")
    if (found := metadata.get("format")) != version:
        raise ArtifactError(f"{path}: format {found!r}, expected {version!r}; make it again")
    return metadata, tensors


def _digest(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> str:
    """BLAKE2b-256 of all names and values, each preceded by its length."""
    digest = hashlib.blake2b(digest_size=32)
    parts: list[bytes] = [text.encode() for item in sorted(metadata.items()) for text in item]
    for name, tensor in sorted(tensors.items()):
        parts += [f"{name} {tensor.dtype.str} {tensor.shape}".encode(), tensor.tobytes()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ScoreLists:
    """The lists a weight was estimated on, laid end to end: b, and s of readouts fitted without them."""

    queries: tuple[Query, ...]
    page_ids: tuple[str, ...]
    lists: Ragged
    retriever: Floats
    readout: Floats
    relevance: Floats | None = None
    """(members,): grades that were given in a file, 0 where there is none; None if it is not known which."""

    def by_query(self) -> dict[str, ScoredPages]:
        """The text of each query → its candidates."""
        return {
            text: ScoredPages(
                self.page_ids[rows], tuple(self.retriever[rows].tolist()), tuple(self.readout[rows].tolist())
            )
            for text, rows in self._rows()
        }

    def grades(self) -> dict[str, dict[str, int]]:
        """The text of each query with relevant pages → their grades by page id."""
        judged: dict[str, dict[str, int]] = {}
        if self.relevance is None:
            return judged
        for text, rows in self._rows():
            pages = zip(self.page_ids[rows], self.relevance[rows].tolist(), strict=True)
            if relevant := {page: int(grade) for page, grade in pages if grade > 0}:
                judged[text] = relevant
        return judged

    def with_grades(self, judged: Mapping[str, Mapping[str, int]]) -> Self:
        """The same lists with these judgements besides, by the text of the query and page id."""
        relevance = np.zeros(len(self.page_ids)) if self.relevance is None else self.relevance.copy()
        for text, rows in self._rows():
            given = judged.get(text, {})
            pages = zip(self.page_ids[rows], relevance[rows].tolist(), strict=True)
            relevance[rows] = [given.get(page, grade) for page, grade in pages]
        return replace(self, relevance=relevance)

    def _rows(self) -> Iterator[tuple[str, slice]]:
        """The text of each query and where its members are."""
        for query, (start, end) in zip(self.queries, pairwise(self.lists.offsets.tolist()), strict=True):
            yield query.text, slice(start, end)

    def content(self) -> tuple[dict[str, NDArray[Any]], str]:
        """What a calibration's file holds of them: tensors, and names as JSON."""
        scores = np.stack([self.retriever, self.readout])
        tensors = {_LENGTHS: self.lists.lengths, _SCORES: scores}
        queries = [[query.query_id, query.text] for query in self.queries]
        return (
            tensors if self.relevance is None else tensors | {_RELEVANCE: self.relevance},
            json.dumps({"queries": queries, "pages": self.page_ids}, ensure_ascii=False),
        )

    @classmethod
    def from_file(cls, tensors: Mapping[str, Floats], names: str) -> Self:
        """The inverse of `content`."""
        listed = json.loads(names)
        retriever, readout = np.asarray(tensors[_SCORES], dtype=np.float64)
        return cls(
            queries=tuple(Query(query_id, text) for query_id, text in listed["queries"]),
            page_ids=tuple(listed["pages"]),
            lists=Ragged.of_lengths(tensors[_LENGTHS].astype(np.int64).tolist()),
            retriever=retriever,
            readout=readout,
            relevance=np.asarray(tensors[_RELEVANCE], np.float64) if _RELEVANCE in tensors else None,
        )


@dataclass(frozen=True, slots=True)
class ReadoutOption:
    """A target and a state that a readout may be fitted with, as measured; NaN where nothing was."""

    target: Target
    state: State
    agreement: float
    """r: held-out correlation of readout and target."""
    relevance: float
    """c_s, on questions that had no say in the choice."""
    note: str

    @property
    def name(self) -> str:
        """As reports show it: `likelihood, mean`."""
        return f"{self.target}, {self.state}"


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """How a calibration was fitted, and how far it can be trusted; NaN where nothing was measured."""

    queries_from: str
    """A file, or how the questions were made; or the readout file that nothing was fitted for."""
    queries: int
    lists: int
    """Of the queries, those whose candidates differ in the target: what the readout was fitted on."""
    candidates: int
    pairs: int
    penalties: tuple[float, ...] = ()
    """λ tried, ascending."""
    errors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Held-out fold → error on its validation fold at each λ, as a share of the squared targets."""
    chosen: Mapping[str, float] = field(default_factory=dict)
    penalty_at_edge: bool = False
    """The deployed λ is the least or greatest tried: a wider range might serve better."""
    agreements: tuple[float, ...] = ()
    """Correlation of the readout with the teacher in each list, by readouts not fitted on it."""
    agreement: float = math.nan
    """r: their mean."""
    agreement_interval: tuple[float, float] = (-1.0, 1.0)
    incumbent: float = 0.5
    """The weight without any evidence: an equal say for the readout and each of the retrievers."""
    reason: str = ""
    options: tuple[ReadoutOption, ...] = ()
    readout_spread: float = math.nan
    """Mean standard deviation of the readout's scores within a held-out list: servers compare with it."""
    teacher: str = "the backbone itself"


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A fitted readout and the weight to fuse it at."""

    readout: Readout
    weight: WeightEstimate
    retriever: str
    retriever_identity: str
    retriever_source: str
    """What to load that retriever by: its name, or the folder of its model."""
    diagnostics: Diagnostics
    target: Target = "margin"
    state: State = "last"
    """Where the readout's states are read; a query has to be run to the same place."""
    target_readout: TargetReadout | None = None
    """Predicts the full model's margin of a page; None if the target is another, or cannot be predicted."""
    lists: ScoreLists | None = None
    """What the weight was estimated from; None if it was not."""

    def save(self, folder: Path, name: str = DEFAULT_NAME) -> Path:
        """Write `NAME.json`, then `NAME.safetensors`: each is whole or not there."""
        path = calibration_path(folder, name)
        with replace_text_file(path.with_suffix(".json")) as file:
            file.write(json.dumps({"name": name, **self.facts()}, indent=2, ensure_ascii=False) + "\n")
        write_sealed(path, *self.content())
        return path

    def content(self) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """Tensors and metadata of the file."""
        metadata = {
            "format": FORMAT,
            "lineage": self.readout.lineage.to_json(),
            "facts": json.dumps(self.facts(), ensure_ascii=False),
        }
        tensors = {"readout": self.readout.vector}
        if self.target_readout is not None:
            tensors[_TARGET_READOUT] = self.target_readout.vector
        if self.lists is not None:
            list_tensors, metadata[_LIST_NAMES] = self.lists.content()
            tensors |= list_tensors
        return tensors, metadata

    @property
    def digest(self) -> str:
        """Eight hex digits that say which calibration this is."""
        return _digest(*self.content())[:8]

    def summary(self) -> str:
        """The weight and what it was measured on, in a sentence."""
        weight, share = self.weight, f"The model counts {self.weight.weight:.2f}"
        if weight.cause:
            return f"{share}: {weight.cause}."
        judged = weight.method == "closed-form"
        share += {"given": " (given)", "prior": ", an equal say"}.get(weight.method, "")
        if math.isnan(weight.c_s):
            return f"{share}: nothing was measured on these pages."
        asked = "judged questions" if judged else "questions made from your pages"
        name = self.retriever.upper() if self.retriever == "bm25" else self.retriever
        measured = (
            f"{share}. On {weight.queries_used} {asked} its score agrees with the right page at "
            f"{weight.c_s:.2f}, {name}'s at {weight.c_b:.2f}, and they agree with each other at "
            f"{weight.rho:.2f}"
        )
        if judged and weight.queries_used >= 64:
            return f"{measured}."
        return f"{measured}; {'64' if judged else '8 judged'} questions would make it surer."

    def facts(self) -> dict[str, Any]:
        """The calibration without its vector, as JSON has it: what could not be estimated is null."""
        facts: dict[str, Any] = {"summary": self.summary()}
        facts |= {name: getattr(self, name) for name in _PLAIN_FACTS}
        facts |= {"penalty": self.readout.penalty, "weight": to_json(self.weight)}
        if (level := self.target_readout) is not None:
            facts[_TARGET_READOUT] = {"intercept": level.intercept, "penalty": level.penalty}
        return {**facts, "diagnostics": to_json(self.diagnostics)}

    @classmethod
    def load(cls, folder: Path, name: str = DEFAULT_NAME, *, lineage: Lineage | None = None) -> Self:
        """Read a calibration by its name; with `lineage` given, one made with another is refused."""
        path = calibration_path(folder, name)
        if not path.exists():
            names = ", ".join(list_calibrations(folder)) or "none"
            raise ArtifactError(
                f"no calibration called {name!r} in {folder}, there: {names}; make one with "
                "`ridgerank calibrate`"
            )
        metadata, tensors = read_sealed(path, FORMAT)
        try:
            return cls.parse(metadata, tensors, lineage, name)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ArtifactError(f"{path} is damaged ({error}); calibrate again") from error

    @classmethod
    def parse(
        cls,
        metadata: Mapping[str, str],
        tensors: Mapping[str, NDArray[Any]],
        lineage: Lineage | None,
        name: str,
    ) -> Self:
        """The inverse of `content`; with `lineage` given, one made with another is refused."""
        saved_lineage = Lineage.from_json(metadata["lineage"])
        if lineage is not None:
            saved_lineage.require(lineage, artifact=f"the calibration {name!r}")
        facts = json.loads(metadata["facts"])
        diagnostics = _read_record(Diagnostics, facts["diagnostics"])
        vector = np.asarray(tensors["readout"], dtype=np.float64)
        if vector.ndim != 1 or not np.isfinite(vector).all() or not 0 <= facts["weight"]["weight"] <= 1:
            raise ValueError("numbers that no calibration has")
        return cls(
            readout=Readout(vector, facts["penalty"], saved_lineage),
            weight=_read_record(WeightEstimate, facts["weight"]),
            **{name: facts[name] for name in _PLAIN_FACTS},
            diagnostics=replace(
                diagnostics,
                errors={part: tuple(values) for part, values in diagnostics.errors.items()},
                options=tuple(_read_record(ReadoutOption, each) for each in facts["diagnostics"]["options"]),
            ),
            target_readout=(
                TargetReadout(np.asarray(tensors[_TARGET_READOUT], np.float64), **facts[_TARGET_READOUT])
                if _TARGET_READOUT in facts
                else None
            ),
            lists=ScoreLists.from_file(tensors, metadata[_LIST_NAMES]) if _LIST_NAMES in metadata else None,
        )


def calibration_path(folder: Path, name: str) -> Path:
    """The file of the calibration called `name`."""
    if not _NAME.fullmatch(name):
        raise ArtifactError(
            f"{name!r} is not a name for a calibration; expected at most 100 letters, digits, '.', '_', '-'"
        )
    return folder / f"{name}.safetensors"


def list_calibrations(folder: Path) -> list[str]:
    """The calibrations of a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def find_damaged_calibrations(folder: Path) -> Iterator[Damage]:
    """Every calibration of a folder that cannot be read, or is not as it was written."""
    for name in list_calibrations(folder):
        try:
            Calibration.load(folder, name)
        except ArtifactError as error:
            yield Damage(f"calibration {name}", None, str(error))


def _read_record(record: type[Record], facts: Mapping[str, Any]) -> Record:
    """The inverse of `to_json`: NaN where null stands for it, tuples for lists."""
    values: dict[str, Any] = {**facts}
    for each in fields(record):
        if isinstance(values.get(each.name), list):
            values[each.name] = tuple(values[each.name])
        elif each.type is float and values[each.name] is None:
            values[each.name] = math.nan
    return record(**values)


def plot_calibration(calibration: Calibration, path: Path) -> None:
    """Write the picture, or log that matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning("no picture of the calibration: matplotlib is missing (pip install 'ridgerank[plot]')")
        return
    facts = calibration.diagnostics
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    path_axes, agreement_axes = figure.subplots(1, 2)

    for errors in facts.errors.values():
        path_axes.plot(facts.penalties, errors, color="0.75", linewidth=1)
    mean = np.mean([list(errors) for errors in facts.errors.values()], axis=0)
    path_axes.plot(facts.penalties, mean, color="C0", marker="o", label="mean over folds")
    path_axes.axvline(calibration.readout.penalty, color="C3", linestyle="--", label="deployed")
    labels = {"xlabel": "penalty λ", "ylabel": "held-out error, share of the targets'"}
    path_axes.set(xscale="log", title="The penalty", **labels)
    path_axes.legend()

    agreement_axes.hist(facts.agreements, bins=np.linspace(-1, 1, 21), color="C0")
    agreement_axes.axvline(
        facts.agreement, color="C3", linestyle="--", label=f"mean r = {facts.agreement:.2f}"
    )
    labels = {"xlabel": "correlation with the teacher, held-out lists", "ylabel": "lists"}
    agreement_axes.set(title="Agreement with the teacher", **labels)
    agreement_axes.legend()

    with replace_file(path) as scratch:
        figure.savefig(scratch, format="png", dpi=110)
