"""`ridgerank check-model` as it is typed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.model_check import ModelCheck, check_model, write_check_pages
from ridgerank.cli.check_model import explain_verdict, list_facts
from ridgerank.errors import BackboneError, StoreError
from tests.backbones.small_text_models import build_text
from tests.cli.commands import invoke


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_text("qwen2", tmp_path_factory.mktemp("model")).folder


@pytest.fixture(scope="module")
def checked(model: Path) -> ModelCheck:
    return check_model(load_backbone(model, device="cpu"), write_check_pages())


def test_a_shipped_model_is_checked_with_pages_it_can_read() -> None:
    printed = invoke("check-model", "mini-qwen", "--device", "cpu", "--quiet").stdout
    assert "YES, as far as 4 queries tell" in printed
    for what in ("margin, page 1", "weights", "peak memory", "bytes per page", "seconds per page"):
        assert what in printed


def test_json_has_every_figure_and_the_words(model: Path) -> None:
    printed = invoke("check-model", model, "--device", "cpu", "--preset", "paper", "--json", "--quiet").stdout
    facts = json.loads(printed)
    assert facts["verdict"] == "none"
    assert facts["in_words"].startswith("NO: ")
    assert facts["setting"].startswith("stride 1/3")
    assert len(facts["queries"]) == 4


def test_the_words_follow_the_verdict(checked: ModelCheck) -> None:
    def words(**changes: object) -> str:
        return explain_verdict(replace(checked, **changes))  # type: ignore[arg-type]

    assert words(verdict="margin", margins_right=4).startswith("YES, as far as 4 queries tell")
    assert words(verdict="likelihood", likelihoods_right=4).startswith("YES, with the likelihood")
    assert "--teacher NAME" in words(verdict="none")
    assert "cannot serve as a student either" in words(verdict="margin", state_distance=0.0)
    assert "likelihood" not in words(verdict="none", likelihoods_right=None)


def test_memory_that_the_system_does_not_tell_is_said(checked: ModelCheck) -> None:
    facts = dict(list_facts(replace(checked, peak_memory_bytes=None)))
    assert facts["peak memory"] == "this system does not tell"
    facts = dict(list_facts(replace(checked, peak_memory_bytes=10**9, peak_device_bytes=2 * 10**9)))
    assert facts["peak memory"] == "1.00 GB (process), 2.00 GB (GPU)"


def test_a_model_or_preset_that_is_unknown_is_an_error_that_names_the_known() -> None:
    with pytest.raises(BackboneError, match=r"no backbone called 'mini-qwan'.*known names: mini-qwen"):
        invoke("check-model", "mini-qwan")
    with pytest.raises(StoreError, match="no preset called 'tiny'; known: small, paper"):
        invoke("check-model", "mini-qwen", "--preset", "tiny")
