"""Weights for any number of scores, what they were estimated from, and how far they can be trusted.

As with two scores, correlations are taken per query and averaged. Before weights are computed they are pulled
towards a common value by their precision: equal correlations give equal weights, so few queries move the
weights little from equal ones. It works on the correlations, not on the weights, because a weight of 0 does
not tell how uncertain it is.
"""

from dataclasses import dataclass

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.fusion.estimate import (
    CONFIDENCE,
    FALLBACK_WEIGHT,
    MOST_CERTAIN,
    RESAMPLES,
    Method,
    describe_count,
)
from ridgerank.fusion.many_scores import (
    LEAST_SCORES,
    fit_common_factor,
    fused_correlation,
    optimal_weights,
)
from ridgerank.fusion.ratio_estimate import MODEL_ERROR
from ridgerank.fusion.standardize import discounts, standardize_weighted
from ridgerank.ragged import Floats, Ragged

ALIKE = 0.98
"""Scores that correlate more are one opinion given twice."""
UNEXPLAINED = 0.05
"""What two scores may share besides relevance, as a correlation, before it is said."""
BETWEEN_SCORES = 0.1
"""How far the correlations of good scores typically lie apart: an assumption, as in `prior.py`."""
_BLOCK = 1 << 21
"""Resampled queries drawn at a time: the bootstrap's memory, whatever the number of queries."""


@dataclass(frozen=True, slots=True, eq=False)
class ManyCorrelations:
    """Correlations of each query whose lists vary."""

    mutual: Floats
    """(queries, scores, scores): of the scores with each other."""
    relevance: Floats | None
    """(queries, scores): of the scores with relevance, where there are judgements."""
    skipped: int
    """Queries left out because a score or relevance is constant."""

    @property
    def queries(self) -> int:
        """Number of queries that have correlations."""
        return len(self.mutual)


@dataclass(frozen=True, slots=True)
class ManyWeights:
    """Fusion weights, in the order of the runs, and what they were estimated from."""

    weights: tuple[float, ...]
    """Not negative, they add up to 1."""
    weight_intervals: tuple[tuple[float, float], ...]
    """95 % each, over resampled queries; without judgements also over errors of the one-factor model."""
    method: Method
    relevance: tuple[float, ...]
    """Correlation of each score with relevance, NaN where it could not be estimated."""
    correlations: tuple[tuple[float, ...], ...]
    """Of the scores with each other."""
    misfit: float
    """What the one-factor model leaves of the scores' correlations, root mean square; NaN with judgements."""
    chance_of_gain: float
    """Share of the resamples in which these weights beat the first run alone; NaN if unknown."""
    queries_used: int
    queries_skipped: int
    note: str
    """What a careful reader should know, empty if nothing."""


def correlate_many(
    scores: Floats, relevance: Floats | None, lists: Ragged, *, discounted: bool = True
) -> ManyCorrelations:
    """Eq. 3 for every query and every pair of scores, (scores, members), and relevance, (members,).

    `discounted` weighs positions by the ranking metric's discount under the order of the first score.
    """
    columns = scores if relevance is None else np.vstack([scores, relevance])
    varied = np.all([lists.max(column) > lists.min(column) for column in columns], axis=0)
    if not varied.any():
        raise CalibrationError(
            f"none of {len(lists)} queries can be used: in each a score or relevance is constant; wanted at "
            "least one query whose lists vary"
        )
    kept, members = lists.select(varied)
    omega = (discounts(scores[0], lists) if discounted else np.ones(lists.members))[members]
    z = np.column_stack([standardize_weighted(column[members], omega, kept) for column in columns])
    products = omega[:, None, None] * z[:, :, None] * z[:, None, :]
    matrix = kept.sum(products) / kept.sum(omega)[:, None, None]
    count = len(scores)
    return ManyCorrelations(
        mutual=matrix[:, :count, :count],
        relevance=None if relevance is None else matrix[:, :count, count],
        skipped=int((~varied).sum()),
    )


def user_weights(weights: Floats) -> ManyWeights:
    """Weights that the user gives, scaled to add up to 1: nothing is estimated."""
    shares = tuple((weights / weights.sum()).tolist())
    unknown = float("nan")
    return ManyWeights(
        weights=shares,
        weight_intervals=tuple((share, share) for share in shares),
        method="given",
        relevance=(unknown,) * len(shares),
        correlations=(),
        misfit=unknown,
        chance_of_gain=unknown,
        queries_used=0,
        queries_skipped=0,
        note="",
    )


def estimate_judged_weights(correlations: ManyCorrelations) -> ManyWeights:
    """The weights of highest correlation with relevance, from judgements."""
    if correlations.relevance is None:
        raise CalibrationError("no judgements among the correlations; wanted relevance")
    rows = np.concatenate([correlations.relevance[:, :, None], correlations.mutual], axis=2)
    share = _equal_share(rows)
    mean = _pull_together(rows.mean(axis=0), share)
    weights = optimal_weights(mean[:, 0], mean[:, 1:])
    draws = _pull_together(_resampled(rows), share)
    drawn_weights = np.array([optimal_weights(draw[:, 0], draw[:, 1:]) for draw in draws])
    gains = fused_correlation(weights, draws[:, :, 0], draws[:, :, 1:]) - draws[:, 0, 0]
    return _summarize(
        correlations,
        weights,
        drawn_weights,
        gains,
        method="closed-form",
        relevance=mean[:, 0],
        misfit=float("nan"),
        note="",
    )


def estimate_weights_without_labels(correlations: ManyCorrelations, fused: int) -> ManyWeights:
    """The same with c from a one-factor model of all scores; the first `fused` of them are given weights.

    Scores beyond these serve the estimate alone. Intervals and chance of gain count the model's own error:
    what its residuals show, and no less than `MODEL_ERROR`.
    """
    count = correlations.mutual.shape[1]
    if count < LEAST_SCORES:
        raise CalibrationError(f"{count} scores, wanted at least {LEAST_SCORES} to do without judgements")
    rows = correlations.mutual
    share = _equal_share(rows)
    mean = _pull_together(rows.mean(axis=0), share)
    model = fit_common_factor(mean)
    if not bool(model.defined):
        return _fall_back(correlations, mean, fused, misfit=float(model.misfit))
    c, mutual = model.loadings[:fused], mean[:fused, :fused]
    weights = optimal_weights(c, mutual)
    draws = _pull_together(_resampled(rows), share)
    drawn = fit_common_factor(draws)
    explained = np.outer(model.loadings, model.loadings)[np.triu_indices(count, 1)]
    relative_misfit = float(model.misfit) / float(np.sqrt((explained**2).mean()))
    deviation = max(relative_misfit, MODEL_ERROR) / np.sqrt(2.0)
    errors = np.random.default_rng(1).normal(scale=deviation, size=(len(draws), fused))
    drawn_c = np.minimum(drawn.loadings[:, :fused] * np.exp(errors), 1.0)
    drawn_mutual = draws[:, :fused, :fused]
    drawn_weights = np.array([optimal_weights(*parts) for parts in zip(drawn_c, drawn_mutual, strict=True)])
    gains = fused_correlation(weights, drawn_c, drawn_mutual) - drawn_c[:, 0]
    checked = (
        f"what the one-factor model leaves of the correlations is {float(model.misfit):.3f} on average"
        if count > LEAST_SCORES
        else "three scores cannot contradict the one-factor model, a fourth (--third) could"
    )
    copies = _describe_copies(rows.mean(axis=0), model.loadings)
    return _summarize(
        correlations,
        weights,
        drawn_weights,
        gains,
        method="label-free",
        relevance=c,
        misfit=float(model.misfit),
        note=f"an estimate without judgements: {checked}.{copies}",
    )


def _describe_copies(mutual: Floats, loadings: Floats) -> str:
    """Which pairs share more than relevance, as copies do: the model takes what they share for relevance."""
    pairs = [(i, j) for i in range(len(mutual)) for j in range(i + 1, len(mutual))]
    alike = [pair for pair in pairs if mutual[pair] > ALIKE]
    shared = [pair for pair in pairs if mutual[pair] - loadings[pair[0]] * loadings[pair[1]] > UNEXPLAINED]
    notes = [
        f" scores {i + 1} and {j + 1} correlate at {mutual[i, j]:.2f}, more than relevance explains; if one "
        "was made from the other, leave it out."
        for i, j in dict.fromkeys(alike + shared)
    ]
    return "".join(notes)


def _fall_back(correlations: ManyCorrelations, mean: Floats, fused: int, *, misfit: float) -> ManyWeights:
    """Near the first run, as with two scores, where no weights can be estimated."""
    weights = np.full(fused, FALLBACK_WEIGHT / (fused - 1))
    weights[0] = 1.0 - FALLBACK_WEIGHT
    return ManyWeights(
        weights=tuple(weights.tolist()),
        weight_intervals=((0.0, 1.0),) * fused,
        method="prior",
        relevance=(float("nan"),) * fused,
        correlations=_to_tuples(mean),
        misfit=misfit,
        chance_of_gain=float("nan"),
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        note=(
            "fewer than three scores share a factor, so nothing says which are good; the weights are a "
            "cautious default near the first run, not an estimate. Give relevance judgements (--qrels)"
        ),
    )


def _summarize(
    correlations: ManyCorrelations,
    weights: Floats,
    drawn_weights: Floats,
    gains: Floats,
    *,
    method: Method,
    relevance: Floats,
    misfit: float,
    note: str,
) -> ManyWeights:
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(drawn_weights, [tail, 1.0 - tail], axis=0)
    chance = float(np.mean(gains > 0))
    if method == "label-free":
        chance = min(chance, MOST_CERTAIN)
    if correlations.queries < 2:
        low, high, chance = np.zeros(len(weights)), np.ones(len(weights)), float("nan")
    if correlations.queries < 16:
        few = describe_count(correlations.queries)
        note = f"{note} {few}: the intervals may be too narrow.".strip()
    return ManyWeights(
        weights=tuple(weights.tolist()),
        weight_intervals=tuple(zip(low.tolist(), high.tolist(), strict=True)),
        method=method,
        relevance=tuple(relevance.tolist()),
        correlations=_to_tuples(correlations.mutual.mean(axis=0)),
        misfit=misfit,
        chance_of_gain=chance,
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        note=note,
    )


def _equal_share(rows: Floats) -> float:
    """In (0, 1]: how far correlations (queries, scores, columns) are pulled together, by their precision."""
    if len(rows) < 2:
        return 1.0
    error = float(rows.var(axis=0, ddof=1).mean()) / len(rows)
    return error / (error + BETWEEN_SCORES**2)


def _pull_together(matrices: Floats, share: float) -> Floats:
    """(…, scores, columns): c, where there is a column for it, and Σ, each pulled to its mean."""
    count = matrices.shape[-2]
    mutual = matrices[..., -count:]
    distinct = 1.0 - np.eye(count)
    level = (mutual * distinct).sum(axis=(-2, -1), keepdims=True) / (count * (count - 1))
    pulled: Floats = (1.0 - share) * mutual + share * (np.eye(count) + level * distinct)
    if matrices.shape[-1] == count:
        return pulled
    c = matrices[..., :1]
    return np.concatenate([(1.0 - share) * c + share * c.mean(axis=-2, keepdims=True), pulled], axis=-1)


def _resampled(rows: Floats) -> Floats:
    """(resamples, scores, columns): means over query sets drawn with replacement."""
    generator = np.random.default_rng(0)  # fixed: the same runs give the same intervals
    block = max(1, _BLOCK // len(rows))
    means = []
    for start in range(0, RESAMPLES, block):
        size = min(block, RESAMPLES - start)
        counts = generator.multinomial(len(rows), np.full(len(rows), 1.0 / len(rows)), size=size)
        means.append(np.tensordot(counts, rows, axes=1) / len(rows))
    return np.concatenate(means)


def _to_tuples(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
