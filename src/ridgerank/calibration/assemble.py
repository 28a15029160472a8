"""The selected readout, its weight and how both were fitted become one `Calibration`."""

from collections.abc import Mapping, Sequence

from ridgerank.calibration.artifact import Calibration, Diagnostics
from ridgerank.calibration.relevance_fit import fit_relevance, withhold_probabilities
from ridgerank.calibration.relevance_model import RelevanceModel
from ridgerank.calibration.score_lists import ScoreLists
from ridgerank.calibration.selection import Selection
from ridgerank.calibration.synthetic_queries import QuerySet
from ridgerank.fusion.standardize import standard_deviations
from ridgerank.lineage import Lineage
from ridgerank.readout.readout import Readout
from ridgerank.records import Candidate, Query


def assemble_calibration(
    selection: Selection,
    query_set: QuerySet,
    candidate_lists: Mapping[Query, Sequence[Candidate]],
    *,
    candidates: int,
    lineage: Lineage,
    retriever: str,
    retriever_source: str,
    transferred: RelevanceModel | None = None,
    teacher: str,
) -> Calibration:
    """The record that is saved beside the store; `candidates` is K.

    Probabilities `transferred` from another store are taken where there are no judgements here. `teacher`
    says whose scores the readout reproduces.
    """
    selected = selection.selected
    lists = selected.problem.lists
    readout = Readout(
        vector=selected.fit.vector,
        penalty=selected.fit.penalty.deployed,
        lists=len(lists),
        pairs=lists.members,
        lineage=lineage,
    )
    relevance = fit_relevance(
        selected.problem, selected.option.target, selected.relevance, transferred=transferred
    )
    doubt = selected.decision.doubt
    return Calibration(
        readout=readout,
        weight=selected.decision.deployed,
        retriever=retriever,
        retriever_source=retriever_source,
        diagnostics=_diagnostics(selection, query_set, candidates, teacher),
        target=selected.option.target,
        state=selected.option.state,
        lists=ScoreLists.of_candidates(
            candidate_lists,
            selected.members,
            selected.problem.retriever,
            selected.fit.held_out_scores,
            selected.problem.targets,
            relevance.predicted,
            selected.relevance,
        ),
        relevance=relevance.model if transferred else withhold_probabilities(relevance.model, doubt),
    )


def _diagnostics(selection: Selection, query_set: QuerySet, candidates: int, teacher: str) -> Diagnostics:
    selected = selection.selected
    lists, fit, decision = selected.problem.lists, selected.fit, selected.decision
    penalty = fit.penalty
    return Diagnostics(
        teacher=teacher,
        queries_from=query_set.origin,
        queries=len(query_set.queries),
        lists=len(lists),
        candidates=candidates,
        pairs=lists.members,
        penalties=tuple(penalty.penalties.tolist()),
        errors={
            fold: tuple((errors / fit.validation_squares[fold]).tolist())
            for fold, errors in penalty.errors.items()
        },
        chosen=dict(penalty.chosen),
        penalty_at_edge=penalty.at_edge,
        agreement=decision.agreement,
        agreement_interval=decision.agreement_interval,
        teacher_relevance=decision.teacher_relevance,
        relevance_floor=decision.relevance_floor,
        expected_gain=decision.expected_gain,
        label_free=decision.label_free,
        paper_label_free=decision.paper_label_free,
        closed_form=decision.closed_form,
        warnings=decision.warnings,
        reason=selection.reason,
        options=selection.options,
        readout_spread=float(standard_deviations(fit.held_out_scores, lists).mean()),
    )
