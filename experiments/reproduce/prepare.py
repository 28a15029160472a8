"""All stages in the order in which each model is loaded once."""

from enum import StrEnum
from typing import TYPE_CHECKING

from experiments.reproduce.experiment import Experiment, calibration_sample
from experiments.reproduce.settings import ExperimentSettings

if TYPE_CHECKING:
    from experiments.baselines.load import BaselineRole


class Need(StrEnum):
    """What a table or figure is computed from, beside candidates."""

    FIRST = "states and margins of the first family"
    ALL = "states and margins of every corpus"
    DEEP = "deep pools of the first family"
    LAYERS = "states of the calibration sample at every layer"
    BASELINES = "scores of the baselines"


def prepare(experiment: Experiment, needs: frozenset[Need]) -> None:
    """Compute what is missing of what is needed."""
    settings = experiment.settings
    corpus_keys = experiment.corpus_keys() if Need.ALL in needs else experiment.corpus_keys(0)
    for retriever in settings.retrievers:
        for corpus_key in corpus_keys:
            experiment.pools(corpus_key, retriever)
    for backbone in settings.backbones:
        for corpus_key in corpus_keys:
            for retriever in settings.retrievers:
                experiment.margins(corpus_key, backbone, retriever)
                experiment.states(corpus_key, backbone, retriever)
        if Need.LAYERS in needs:
            sample = calibration_sample(experiment)
            for corpus_key in experiment.corpus_keys(0):
                experiment.layers(corpus_key, backbone, sample[corpus_key.number])
        if Need.DEEP in needs:
            for corpus_key in experiment.corpus_keys(0):
                experiment.deeper(corpus_key, backbone, settings.retrievers[0])
    for role in ROLES if Need.BASELINES in needs else ():
        experiment.models.release()
        for retriever in settings.retrievers:
            if role in roles_behind(settings, retriever):
                for corpus_key in corpus_keys:
                    experiment.baseline_scores(corpus_key, retriever, role)
        if Need.DEEP in needs and role in DEEP_ROLES:
            for corpus_key in experiment.corpus_keys(0):
                experiment.baseline_scores(
                    corpus_key, settings.retrievers[0], role, candidates=settings.deepest
                )
    experiment.models.release()


ROLES: tuple["BaselineRole", ...] = ("text retriever", "GQR", "text reranker", "image reranker")
DEEP_ROLES: tuple["BaselineRole", ...] = ("text retriever", "text reranker")
"""The baselines that the study of pool depth compares with (§B.5)."""


def roles_behind(settings: ExperimentSettings, retriever: str) -> tuple["BaselineRole", ...]:
    """The baselines behind a retriever: GQR behind the first only, as in the paper."""
    first = retriever == settings.retrievers[0]
    return ROLES if first else tuple(role for role in ROLES if role != "GQR")
