"""All stages in the order in which each model is loaded once."""

from enum import StrEnum
from typing import TYPE_CHECKING

from experiments.reproduce.experiment import Lab, Site
from experiments.reproduce.parallel import Ahead, Step
from experiments.reproduce.sample import calibration_sample
from experiments.reproduce.settings import Settings

if TYPE_CHECKING:
    from experiments.baselines.load import Role


class Need(StrEnum):
    """What a table or figure is computed from, beside candidates."""

    FIRST = "states and margins of the first family"
    ALL = "states and margins of every corpus"
    DEEP = "deep pools of the first family"
    LAYERS = "states of the calibration sample at every layer"
    ARMS = "scores of the other arms"


def prepare(lab: Lab, needs: frozenset[Need], *, processes: int = 1) -> None:
    """Compute what is missing of what is needed, as much as possible ahead by several processes."""
    settings = lab.settings
    sites = lab.sites() if Need.ALL in needs else lab.sites(0)
    with Ahead(lab, processes) as ahead:
        ahead.run(
            "corpora embedded",
            [[Step("vectors", (site, retriever))] for retriever in settings.retrievers for site in sites],
        )
        for retriever in settings.retrievers:
            for site in sites:
                lab.pools(site, retriever)
        ahead.run(
            "corpora indexed, margins taken",
            [untimed(lab, site, backbone, needs) for backbone in settings.backbones for site in sites],
        )
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


def untimed(lab: Lab, site: Site, backbone: str, needs: frozenset[Need]) -> list[Step]:
    """What a corpus needs of a backbone that no clock looks at."""
    settings = lab.settings
    steps = [Step("margins", (site, backbone, retriever)) for retriever in settings.retrievers]
    if Need.LAYERS in needs and site.family == 0:
        steps.append(Step("layers", (site, backbone, calibration_sample(lab)[site.number])))
    if Need.DEEP in needs and site.family == 0:
        steps.append(Step("deeper", (site, backbone, settings.retrievers[0])))
    return steps


ROLES: tuple["Role", ...] = ("text retriever", "GQR", "text reranker", "image reranker")
DEEP_ROLES: tuple["Role", ...] = ("text retriever", "text reranker")
"""The arms that the study of pool depth compares with (§B.5)."""


def roles_behind(settings: Settings, retriever: str) -> tuple["Role", ...]:
    """GQR stands under the first retriever only, as in the paper."""
    first = retriever == settings.retrievers[0]
    return ROLES if first else tuple(role for role in ROLES if role != "GQR")
