"""A weight from the judgements of another corpus (§4): w* of a store that was calibrated with them.

Probabilities of relevance that were fitted to these judgements come along.

Nothing of this corpus has to be judged then. The weight depends on both scores, so the other store has to be
of the same lineage and its calibration for the same retriever.
"""

from dataclasses import dataclass, replace
from pathlib import PurePath

from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration
from ridgerank.calibration.relevance_model import RelevanceModel
from ridgerank.errors import CalibrationError
from ridgerank.fusion.estimate import WeightEstimate
from ridgerank.lineage import Lineage
from ridgerank.records import State, Target
from ridgerank.store.sidecar import open_calibrations


@dataclass(frozen=True, slots=True)
class TransferredWeight:
    """A weight, and the target and state of the readout it was estimated for."""

    weight: WeightEstimate
    target: Target
    state: State
    relevance: RelevanceModel | None
    """Probabilities fitted to the same judgements, where there are any."""


def transfer_weight(source: str, *, lineage: Lineage, retriever: str) -> TransferredWeight:
    """The closed-form weight of another store's calibration, `STORE` or `STORE#NAME`."""
    uri, _, name = source.partition("#")
    with open_calibrations(uri) as folder:
        calibration = Calibration.load(folder, name or DEFAULT_NAME, lineage=lineage)
    if calibration.retriever != retriever:
        raise CalibrationError(
            f"the calibration of {source} weighs the scores of {calibration.retriever!r}, wanted "
            f"{retriever!r}; calibrate it for this retriever"
        )
    if calibration.target == "teacher":
        raise CalibrationError(
            f"{source} reproduces {calibration.diagnostics.teacher}, not the model's own scores, and its "
            "weight is for those; calibrate here with the same --teacher, and --qrels"
        )
    estimate = calibration.diagnostics.closed_form
    if estimate is None:
        raise CalibrationError(
            f"{source} was calibrated without judgements; calibrate it with --queries and --qrels first"
        )
    origin = f"read on the {estimate.queries_used} judged queries of {PurePath(uri).name}"
    weight = replace(estimate, note=f"{origin}; {estimate.note}" if estimate.note else origin)
    relevance = calibration.relevance
    if relevance is not None:
        relevance = replace(relevance, note=origin) if relevance.calibrated else None
    return TransferredWeight(weight, calibration.target, calibration.state, relevance)
