import numpy as np
import pytest

from ridgerank.errors import CalibrationError
from ridgerank.readout.moments import CenteredMoments, Products
from ridgerank.readout.ridge import (
    Fold,
    choose_penalty,
    choose_penalty_of_few,
    deploy_modal,
    merge_moments,
    nested_folds,
)
from tests.readout.test_moments import gathered

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


def test_every_corpus_is_held_out_once_and_the_next_one_validates() -> None:
    assert nested_folds(CORPORA) == [
        Fold("biomed", "econ", ("esg-h", "esg-f")),
        Fold("econ", "esg-h", ("biomed", "esg-f")),
        Fold("esg-h", "esg-f", ("biomed", "econ")),
        Fold("esg-f", "biomed", ("econ", "esg-h")),
    ]


@pytest.mark.parametrize("names", [["a", "b"], ["a", "a", "b"]])
def test_three_different_corpora_are_needed(names: list[str]) -> None:
    with pytest.raises(CalibrationError, match="at least three different"):
        nested_folds(names)


def test_the_choice_minimizes_held_out_error_found_by_brute_force() -> None:
    corpora = noisy_corpora(3.0)
    penalties = np.array([0.1, 10.0, 1000.0])
    choice = choose_penalty(corpora, penalties)
    for fold in nested_folds(CORPORA):
        fit = merge_moments(corpora, fold.fitted).problem()
        assert isinstance(fit, Products)
        readouts = [np.linalg.solve(fit.gram + penalty * np.eye(20), fit.moment) for penalty in penalties]
        errors = corpora[fold.validation].squared_error(np.vstack(readouts))
        assert choice.chosen[fold.held_out] == penalties[int(np.argmin(errors))]
        np.testing.assert_allclose(choice.errors[fold.held_out], errors)


def test_of_few_lists_the_errors_of_all_other_parts_are_added_up() -> None:
    corpora = noisy_corpora(3.0)
    penalties = np.array([0.1, 10.0, 1000.0])

    def errors(validation: str, left_out: set[str]) -> np.ndarray:
        fit = merge_moments(corpora, [name for name in CORPORA if name not in left_out]).problem()
        assert isinstance(fit, Products)
        readouts = [np.linalg.solve(fit.gram + penalty * np.eye(20), fit.moment) for penalty in penalties]
        return corpora[validation].squared_error(np.vstack(readouts))

    choice = choose_penalty_of_few(corpora, penalties)
    for held_out in CORPORA:
        summed = sum(errors(other, {held_out, other}) for other in CORPORA if other != held_out)
        np.testing.assert_allclose(choice.errors[held_out], summed)
        assert choice.chosen[held_out] == penalties[int(np.argmin(summed))]
    assert choice.deployed == penalties[int(np.argmin(sum(errors(name, {name}) for name in CORPORA)))]


def test_noisier_targets_want_a_larger_penalty() -> None:
    quiet, loud = choose_penalty(noisy_corpora(0.01)), choose_penalty(noisy_corpora(30.0))
    assert quiet.deployed < loud.deployed
    assert quiet.deployed <= 0.1


def test_the_modal_choice_is_deployed_and_ties_go_to_the_larger() -> None:
    penalties = np.array([1.0, 10.0, 100.0])
    low, middle, high = np.array([0.0, 1, 1]), np.array([1.0, 0, 1]), np.array([1.0, 1, 0])
    assert deploy_modal(penalties, {"a": low, "b": middle, "c": low}).deployed == 1.0
    assert deploy_modal(penalties, {"a": low, "b": high, "c": middle}).deployed == 100.0
    flat = deploy_modal(penalties, {"a": np.zeros(3)})
    assert flat.deployed == 100.0
    assert flat.at_edge


def test_merging_for_a_fold_leaves_the_corpora_as_they_were() -> None:
    corpora = noisy_corpora(1.0)
    pairs = {name: moments.pairs for name, moments in corpora.items()}
    assert merge_moments(corpora, ["econ", "esg-h"]).pairs == pairs["econ"] + pairs["esg-h"]
    assert {name: moments.pairs for name, moments in corpora.items()} == pairs
