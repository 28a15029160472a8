"""A calibration as a small file beside the store: the readout, the weight, and how both came about.

`NAME.safetensors` is all that ranking reads; `NAME.json` says the same to people and `NAME.png` shows it.
A calibration is bound to the lineage of its store and to the retriever its weight is for, and sealed with a
digest of all it holds (`sealed_file.py`).
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_text_file
from ridgerank.calibration.relevance_model import RelevanceModel
from ridgerank.calibration.score_lists import NAMES, ScoreLists
from ridgerank.calibration.sealed_file import read_sealed, write_sealed
from ridgerank.errors import ArtifactError
from ridgerank.fusion.estimate import WeightEstimate
from ridgerank.lineage import Lineage
from ridgerank.readout.readout import Readout
from ridgerank.records import State, Target

FORMAT = "ridgerank-calibration-2"
DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_JSON_NAMES = {"options": "readings", "varied_share": "told_apart"}
"""Fields that files know by another name."""
_TARGET_READOUT = "target_readout"
"""The tensor of `RelevanceModel.readout`."""
_FIELD_NAMES = {json_name: name for name, json_name in _JSON_NAMES.items()}


@dataclass(frozen=True, slots=True)
class ReadoutOption:
    """A target and a state that a readout may be fitted with, as measured; NaN where nothing was."""

    target: Target
    state: State
    varied_share: float
    """Share of the lists in which the target differs between candidates."""
    spread: float
    """Mean over lists of the target's standard deviation over the candidates, in its own unit."""
    retriever_target: float
    """ρ_bt: c_b c_t under the one-factor model."""
    retriever_readout: float
    """ρ_bs: c_b c_s under the one-factor model, of held-out readout scores."""
    agreement: float
    """r: held-out correlation of readout and target."""
    relevance: float
    """c_s, judged or by the one-factor model; NaN where neither is possible."""
    supported: bool
    """Its weight is an estimate and promises a gain over the retriever."""
    note: str
    """Why it is not supported, empty where it is."""

    @property
    def name(self) -> str:
        """As reports show it: `likelihood, mean`."""
        return f"{self.target}, {self.state}"


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """How a calibration was fitted, and how far it can be trusted."""

    queries_from: str
    """A file, or how the queries were generated."""
    queries: int
    """Queries asked."""
    lists: int
    """Of these, queries whose candidates differ in the target: what the readout was fitted on."""
    candidates: int
    """K: pages per query, at most."""
    pairs: int
    """Pairs of a query and a candidate the readout was fitted on."""
    penalties: tuple[float, ...]
    """λ tried, ascending."""
    errors: Mapping[str, tuple[float, ...]]
    """Held-out fold → error on its validation fold at each λ, as a share of the squared targets."""
    chosen: Mapping[str, float]
    """Held-out fold → the λ picked without it."""
    penalty_at_edge: bool
    """The deployed λ is the least or greatest tried: a wider range might serve better."""
    agreement: float
    """r: mean correlation of the readout with the teacher, on lists it was not fitted on."""
    agreement_interval: tuple[float, float]
    """95 % interval of r over lists."""
    teacher_relevance: float
    """c_t: correlation of the teacher with relevance, judged or estimated; NaN where neither is possible."""
    relevance_floor: float
    """Proposition 2: the least c_s that r and c_t allow; NaN where c_t is."""
    expected_gain: float
    """What the deployed weight adds to the retriever's correlation with relevance; NaN where unknown."""
    label_free: WeightEstimate
    """The weight estimated without judgements."""
    closed_form: WeightEstimate | None
    """The weight read from judgements, of this corpus or another, where there were any."""
    warnings: tuple[str, ...]
    """What must not go unnoticed."""
    reason: str = ""
    """Why this target and this state were selected."""
    options: tuple[ReadoutOption, ...] = ()
    """All targets and states that were measured."""
    readout_spread: float = math.nan
    """Mean standard deviation of the readout's scores within a held-out list: servers compare with it."""
    paper_label_free: WeightEstimate | None = None
    """§B.6 of the selected reading alone, for comparison; None in files of an older release."""
    teacher: str = "the backbone itself"
    """Whose scores the readout reproduces."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A fitted readout and the weight to fuse it at."""

    readout: Readout
    weight: WeightEstimate
    """What is deployed: an estimate, or the safe choice where that promises no gain."""
    retriever: str
    """Name of the retriever whose scores the weight is for."""
    retriever_source: str
    """What to load that retriever by: its name, or the folder of its model."""
    diagnostics: Diagnostics
    target: Target = "margin"
    """What the readout is fitted to."""
    state: State = "last"
    """Where the readout's states are read; a query has to be run to the same place."""
    relevance: RelevanceModel | None = None
    """Probabilities of relevance; None in a calibration made before there were any."""
    lists: ScoreLists | None = None
    """The lists the weight was estimated from; None in a calibration of an older release."""

    def save(self, folder: Path, name: str = DEFAULT_NAME) -> Path:
        """Write `NAME.json`, then `NAME.safetensors`: each is whole or not there."""
        path = calibration_path(folder, name)
        facts = self.facts()
        with replace_text_file(path.with_suffix(".json")) as file:
            file.write(json.dumps({"name": name, **facts}, indent=2, ensure_ascii=False) + "\n")
        fit = {part: getattr(self.readout, part) for part in ("penalty", "lists", "pairs")}
        metadata = {
            "format": FORMAT,
            "lineage": self.readout.lineage.to_json(),
            "fit": json.dumps(fit),
            "facts": json.dumps(facts, ensure_ascii=False),
        }
        tensors = {"readout": self.readout.vector}
        if self.relevance is not None:
            tensors[_TARGET_READOUT] = self.relevance.readout.vector
        if self.lists is not None:
            tensors |= self.lists.tensors()
            metadata[NAMES] = self.lists.names()
        write_sealed(path, tensors, metadata)
        return path

    def facts(self) -> dict[str, Any]:
        """The calibration without its vector, as JSON has it: what could not be estimated is null."""
        retriever = {"retriever": self.retriever, "retriever_source": self.retriever_source}
        option = {"target": self.target, "state": self.state}
        parts = {**retriever, **option, "penalty": self.readout.penalty, "weight": asdict(self.weight)}
        diagnostics = _rename_keys(asdict(self.diagnostics), _JSON_NAMES)
        diagnostics["readings"] = [_rename_keys(option, _JSON_NAMES) for option in diagnostics["readings"]]
        if self.relevance is not None:
            parts["relevance"] = self.relevance.facts()
        facts: dict[str, Any] = _to_json({**parts, "diagnostics": diagnostics})
        return facts

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
        metadata, tensors = read_sealed(path)
        if metadata.get("format") != FORMAT:
            raise ArtifactError(
                f"{path}: format {metadata.get('format')!r}, wanted {FORMAT!r}; calibrate again"
            )
        try:
            return cls._parse(metadata, tensors, lineage, name)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ArtifactError(f"{path} is damaged ({error}); calibrate again") from error

    @classmethod
    def _parse(
        cls,
        metadata: Mapping[str, str],
        tensors: Mapping[str, NDArray[Any]],
        lineage: Lineage | None,
        name: str,
    ) -> Self:
        saved_lineage = Lineage.from_json(metadata["lineage"])
        if lineage is not None:
            saved_lineage.require(lineage, artifact=f"the calibration {name!r}")
        facts = json.loads(metadata["facts"])
        vector = np.asarray(tensors["readout"], dtype=np.float64)
        if vector.ndim != 1 or not np.isfinite(vector).all() or not 0 <= facts["weight"]["weight"] <= 1:
            raise ValueError("numbers that no calibration has")
        return cls(
            readout=Readout(vector=vector, lineage=saved_lineage, **json.loads(metadata["fit"])),
            weight=_estimate(facts["weight"]),
            retriever=facts["retriever"],
            retriever_source=facts["retriever_source"],
            target=facts["target"],
            state=facts["state"],
            diagnostics=_diagnostics(facts["diagnostics"]),
            relevance=(
                RelevanceModel.from_facts(facts["relevance"], tensors[_TARGET_READOUT])
                if "relevance" in facts
                else None
            ),
            lists=ScoreLists.from_file(tensors, metadata[NAMES]) if NAMES in metadata else None,
        )


def calibration_path(folder: Path, name: str) -> Path:
    """The file of the calibration called `name`."""
    if not _NAME.fullmatch(name):
        raise ArtifactError(f"a calibration called {name!r}; wanted letters, digits, '.', '_' and '-'")
    return folder / f"{name}.safetensors"


def list_calibrations(folder: Path) -> list[str]:
    """The calibrations of a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def _to_json(value: Any) -> Any:  # noqa: ANN401 (whatever JSON holds)
    """JSON has no NaN: null stands for it."""
    if isinstance(value, Mapping):
        return {key: _to_json(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_json(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _estimate(facts: Mapping[str, Any]) -> WeightEstimate:
    values = _field_values(WeightEstimate, facts)
    return WeightEstimate(**{**values, "weight_interval": tuple(facts["weight_interval"])})


def _optional_estimate(facts: Mapping[str, Any] | None) -> WeightEstimate | None:
    return None if facts is None else _estimate(facts)


def _diagnostics(facts: Mapping[str, Any]) -> Diagnostics:
    return Diagnostics(
        **{
            **_field_values(Diagnostics, facts),
            "penalties": tuple(facts["penalties"]),
            "errors": {part: tuple(errors) for part, errors in facts["errors"].items()},
            "agreement_interval": tuple(facts["agreement_interval"]),
            "label_free": _estimate(facts["label_free"]),
            "closed_form": _optional_estimate(facts["closed_form"]),
            "paper_label_free": _optional_estimate(facts.get("paper_label_free")),
            "warnings": tuple(facts["warnings"]),
            "options": tuple(
                ReadoutOption(**_field_values(ReadoutOption, option)) for option in facts["readings"]
            ),
        }
    )


def _field_values(
    record: type[WeightEstimate] | type[Diagnostics] | type[ReadoutOption], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a record, NaN where null stands for it."""
    numbers = {field.name for field in fields(record) if field.type is float}
    values = _rename_keys(facts, _FIELD_NAMES)
    return {name: math.nan if value is None and name in numbers else value for name, value in values.items()}


def _rename_keys(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in record.items()}
