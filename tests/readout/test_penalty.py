from itertools import pairwise

import numpy as np

from ridgerank.ragged import Floats
from ridgerank.readout import (
    CenteredMoments,
    choose_penalty,
    choose_penalty_of_few,
    deploy_modal,
    merge_moments,
)
from tests.readout.test_moments import gathered

THREE_PENALTIES = np.array([0.1, 10.0, 1000.0])
CORPORA = ["biomed", "econ", "esg-h", "esg-f"]


def noisy_corpora(noise: float, *, dim: int = 20) -> dict[str, CenteredMoments]:
    truth = np.random.default_rng(42).standard_normal(dim)
    corpora = {}
    for seed, name in enumerate(CORPORA):
        generator = np.random.default_rng(seed)
        lists = []
        for _ in range(6):
            states = generator.standard_normal((8, dim))
            lists.append((states, states @ truth + noise * generator.standard_normal(8)))
        corpora[name] = gathered(lists, dim)
    return corpora


def brute_force(corpora: dict[str, CenteredMoments], validation: str, left_out: set[str]) -> Floats:
    """(penalties,): the error on one corpus of readouts fitted without some, solved one by one."""
    gram, moment = merge_moments(corpora, [name for name in CORPORA if name not in left_out]).products()
    readouts = [np.linalg.solve(gram + each * np.eye(20), moment) for each in THREE_PENALTIES]
    return corpora[validation].squared_error(np.vstack(readouts))


def test_the_choice_minimizes_held_out_error() -> None:
    corpora = noisy_corpora(3.0)
    choice = choose_penalty(corpora, THREE_PENALTIES)
    assert list(choice.chosen) == CORPORA
    for held_out, validation in pairwise([*CORPORA, CORPORA[0]]):  # the next one validates
        errors = brute_force(corpora, validation, {held_out, validation})
        assert choice.chosen[held_out] == THREE_PENALTIES[int(np.argmin(errors))]
        np.testing.assert_allclose(choice.errors[held_out], errors)


def test_of_few_lists_the_errors_of_all_other_parts_are_added_up() -> None:
    corpora = noisy_corpora(3.0)
    choice = choose_penalty_of_few(corpora, THREE_PENALTIES)
    for held_out in CORPORA:
        others = [name for name in CORPORA if name != held_out]
        summed = np.sum([brute_force(corpora, other, {held_out, other}) for other in others], axis=0)
        np.testing.assert_allclose(choice.errors[held_out], summed)
        assert choice.chosen[held_out] == THREE_PENALTIES[int(np.argmin(summed))]
    total = np.sum([brute_force(corpora, name, {name}) for name in CORPORA], axis=0)
    assert choice.deployed == THREE_PENALTIES[int(np.argmin(total))]


def test_the_modal_choice_is_deployed_and_ties_go_to_the_larger() -> None:
    penalties = np.array([1.0, 10.0, 100.0])
    low, middle, high = np.array([0.0, 1, 1]), np.array([1.0, 0, 1]), np.array([1.0, 1, 0])
    assert deploy_modal(penalties, {"a": low, "b": middle, "c": low}).deployed == 1.0
    assert deploy_modal(penalties, {"a": low, "b": high, "c": middle}).deployed == 100.0
    flat = deploy_modal(penalties, {"a": np.zeros(3)})
    assert flat.deployed == 100.0
    assert flat.at_edge
