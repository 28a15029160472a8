"""All stages in the order in which each model is loaded once."""

from enum import StrEnum
from typing import TYPE_CHECKING

from ridgerank.evaluation.reproduce.lab import Lab
from ridgerank.evaluation.reproduce.sample import calibration_sample
from ridgerank.evaluation.reproduce.settings import Settings

if TYPE_CHECKING:
    from ridgerank.evaluation.arms.load import Role


class Need(StrEnum):
    """What a table or figure is computed from, beside candidates."""

    FIRST = "states and margins of the first family"
    ALL = "states and margins of every corpus"
    DEEP = "deep pools of the first family"
    LAYERS = "states of the calibration sample at every layer"
    ARMS = "scores of the other arms"


def prepare(lab: Lab, needs: frozenset[Need]) -> None:
    """Compute what is missing of what is needed."""
    settings = lab.settings
    sites = lab.sites() if Need.ALL in needs else lab.sites(0)
    for retriever in settings.retrievers:
        for site in sites:
            lab.pools(site, retriever)
    for backbone in settings.backbones:
        for site in sites:
            for retriever in settings.retrievers:
                lab.margins(site, backbone, retriever)
                lab.states(site, backbone, retriever)
        if Need.LAYERS in needs:
            sample = calibration_sample(lab)
            for site in lab.sites(0):
                lab.layers(site, backbone, sample[site.number])
        if Need.DEEP in needs:
            for site in lab.sites(0):
                lab.deeper(site, backbone, settings.retrievers[0])
    for role in ROLES if Need.ARMS in needs else ():
        lab.release()
        for retriever in settings.retrievers:
            if role in roles_behind(settings, retriever):
                for site in sites:
                    lab.arm(site, retriever, role)
        if Need.DEEP in needs and role in DEEP_ROLES:
            for site in lab.sites(0):
                lab.arm(site, settings.retrievers[0], role, candidates=settings.deepest)
    lab.release()


ROLES: tuple["Role", ...] = ("text retriever", "GQR", "text reranker", "image reranker")
DEEP_ROLES: tuple["Role", ...] = ("text retriever", "text reranker")
"""The arms that the study of pool depth compares with (§B.5)."""


def roles_behind(settings: Settings, retriever: str) -> tuple["Role", ...]:
    """GQR stands under the first retriever only, as in the paper."""
    first = retriever == settings.retrievers[0]
    return ROLES if first else tuple(role for role in ROLES if role != "GQR")
