"""The calibration as a file: whole, versioned, bound to its lineage."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from ridgerank.calibration.artifact import Calibration, list_calibrations
from ridgerank.errors import ArtifactError, LineageMismatch
from ridgerank.lineage import Lineage
from tests.calibrated_store import random_calibration, random_relevance
from tests.store.pages import LINEAGE
from tests.test_lineage import OF_TEXT

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def calibration() -> Calibration:
    return random_calibration(LINEAGE, 8)


def test_a_calibration_is_read_back_as_it_was(tmp_path: Path, calibration: Calibration) -> None:
    calibration.save(tmp_path)
    loaded = Calibration.load(tmp_path, lineage=LINEAGE)
    np.testing.assert_array_equal(loaded.readout.vector, calibration.readout.vector)
    assert loaded.readout.lineage == LINEAGE
    assert (loaded.retriever, loaded.retriever_source) == (
        calibration.retriever,
        calibration.retriever_source,
    )
    assert loaded.facts() == calibration.facts()
    assert repr(loaded.weight) == repr(calibration.weight)
    assert repr(loaded.diagnostics) == repr(calibration.diagnostics)
    assert math.isnan(loaded.diagnostics.agreement)


@pytest.mark.parametrize("probabilities", [True, False])
def test_probabilities_of_relevance_are_read_back_as_they_were(
    tmp_path: Path, calibration: Calibration, probabilities: bool
) -> None:
    relevance = random_relevance(8)
    if not probabilities:
        relevance = replace(relevance, page=None, query=None, calibrated=False)
    replace(calibration, relevance=relevance).save(tmp_path)
    loaded = Calibration.load(tmp_path, lineage=LINEAGE).relevance
    assert loaded is not None
    np.testing.assert_array_equal(loaded.readout.vector, relevance.readout.vector)
    assert loaded.facts() == relevance.facts()
    assert (loaded.page, loaded.query) == (relevance.page, relevance.query)
    states = np.random.default_rng(0).normal(size=(4, 8))
    assert loaded.assess(states) == relevance.assess(states)


def test_a_calibration_made_before_there_were_probabilities_has_none(
    tmp_path: Path, calibration: Calibration
) -> None:
    calibration.save(tmp_path)
    assert "relevance" not in json.loads((tmp_path / "default.json").read_text())
    assert Calibration.load(tmp_path).relevance is None


def test_a_calibration_written_before_settings_were_fields_is_read(tmp_path: Path) -> None:
    lineage = Lineage.from_json(OF_TEXT)
    calibration = random_calibration(lineage, 8)
    calibration.save(tmp_path)
    path = tmp_path / "default.safetensors"
    with safe_open(path, framework="numpy") as file:
        metadata, vector = file.metadata(), file.get_tensor("readout")
    del metadata["digest"]  # which such files do not have
    save_file({"readout": vector}, path, metadata={**metadata, "lineage": OF_TEXT})
    loaded = Calibration.load(tmp_path, lineage=lineage)
    np.testing.assert_array_equal(loaded.readout.vector, calibration.readout.vector)
    assert loaded.readout.lineage == lineage
    assert loaded.facts() == calibration.facts()


def test_the_report_beside_it_is_json_without_nan(tmp_path: Path, calibration: Calibration) -> None:
    calibration.save(tmp_path, "mine")
    facts = json.loads((tmp_path / "mine.json").read_text(), parse_constant=pytest.fail)
    assert facts["name"] == "mine"
    assert facts["diagnostics"]["agreement"] is None


def test_several_names_live_side_by_side(tmp_path: Path, calibration: Calibration) -> None:
    for name in ("default", "bm25", "v1.2"):
        calibration.save(tmp_path, name)
    assert list_calibrations(tmp_path) == ["bm25", "default", "v1.2"]
    with pytest.raises(
        ArtifactError, match=r"no calibration called 'x'.*there: bm25, default, v1\.2; make one"
    ):
        Calibration.load(tmp_path, "x")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_names_that_are_no_file_names_are_refused(
    tmp_path: Path, calibration: Calibration, name: str
) -> None:
    with pytest.raises(ArtifactError, match="wanted letters, digits"):
        calibration.save(tmp_path, name)


def test_another_lineage_is_refused(tmp_path: Path, calibration: Calibration) -> None:
    calibration.save(tmp_path)
    with pytest.raises(LineageMismatch, match="the calibration 'default' was made with another lineage"):
        Calibration.load(tmp_path, lineage=replace(LINEAGE, exit_layer=9))


def test_damaged_files_and_other_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ArtifactError, match="not a readable calibration"):
        Calibration.load(tmp_path, "bad")
    save_file({"readout": np.zeros(3)}, tmp_path / "other.safetensors", {"format": "ridgerank-calibration-0"})
    with pytest.raises(ArtifactError, match="format 'ridgerank-calibration-0', wanted"):
        Calibration.load(tmp_path, "other")


def test_a_calibration_of_the_first_release_is_read_to_the_same_digits(tmp_path: Path) -> None:
    first = json.loads((FIXTURES / "calibration_of_first_release.json").read_text())
    facts = first["metadata"]["facts"]
    texts = {
        name: value if name == "format" else json.dumps(value) for name, value in first["metadata"].items()
    }
    save_file({"readout": np.array(first["vector"])}, tmp_path / "default.safetensors", texts)
    calibration = Calibration.load(tmp_path)
    assert calibration.readout.vector.tolist() == first["vector"]
    assert [option.note for option in calibration.diagnostics.options] == [
        reading["note"] for reading in facts["diagnostics"]["readings"]
    ]
    today = calibration.facts()
    for estimate in (today["weight"], today["diagnostics"]["label_free"]):
        assert estimate.pop("cause") == ""  # a field that the first release did not write
    assert today["diagnostics"].pop("paper_label_free") is None  # nor this one
    assert today["diagnostics"].pop("teacher") == "the backbone itself"  # nor this one
    assert today == facts
