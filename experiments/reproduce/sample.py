"""The calibration sample: queries of the first family, spread evenly over its corpora (§4)."""

import numpy as np

from experiments.reproduce.experiment import Experiment


def even_shares(total: int, available: list[int]) -> list[int]:
    """How many queries of each corpus: even shares, what one corpus lacks goes to those that have more."""
    shares = [0] * len(available)
    left = min(total, sum(available))
    while left:
        not_full = [number for number, most in enumerate(available) if shares[number] < most]
        for number in not_full[:left]:
            shares[number] += 1
        left = min(total, sum(available)) - sum(shares)
    return shares


def calibration_sample(experiment: Experiment) -> list[list[int]]:
    """For each corpus of the first family, the numbers of its queries drawn, ascending."""
    settings = experiment.settings
    counts = [len(experiment.corpus(corpus_key).queries) for corpus_key in experiment.corpus_keys(0)]
    generator = np.random.default_rng(settings.seed)
    return [
        sorted(generator.choice(count, size=share, replace=False).tolist())
        for count, share in zip(counts, even_shares(settings.calibration_queries, counts), strict=True)
    ]
