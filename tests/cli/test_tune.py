"""`ridgerank tune`: a table, a file, a picture, and a command that does what it recommends."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from ridgerank.calibration import storage_tuning
from ridgerank.calibration.storage_choice import MeasuredSetting, StorageChoice, StorageGoal
from ridgerank.errors import CalibrationError, ExtraMissing, StoreError
from ridgerank.store.page_store import PageStore
from tests.cli.commands import invoke


def options(folder: Path) -> tuple[object, ...]:
    return ("--store", folder / "store", "--device", "cpu")


def test_tune_prints_the_settings_draws_them_and_ends_with_advice(folder: Path, tmp_path: Path) -> None:
    output, plot = tmp_path / "tune.json", tmp_path / "tune.png"
    done = invoke(
        "tune", *options(folder), "--bits", "4 group 32", "--bits", "2", "--exit-layer", 2,
        "--output", output, "--plot", plot,
    )  # fmt: skip
    facts = json.loads(output.read_text())
    assert [row["exit_layer"] for row in facts["settings"]] == [4, 2, 2]
    assert facts["settings"][0]["marks"][-1 if facts["command"] else -2] == "current"
    assert [row["bits"] for row in facts["settings"]] == ["8", "4 group 32", "2"]
    assert done.stdout.count("frontier") >= 1
    assert done.stdout.count("recommended") == 1
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("Keep the store as it is") or last == facts["command"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "targets of all of them known" in done.stderr
    assert "3 settings on 40 pages" in done.stderr


@pytest.mark.parametrize("keep", ["stride 1/3", "value-norm 1/2"])
def test_the_command_recommended_makes_a_store_of_that_setting(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    """Repacked where the store holds enough, else indexed again."""

    def take_last(rows: tuple[MeasuredSetting, ...], _: StorageGoal) -> StorageChoice:
        return StorageChoice(rows[-1], "the last")

    monkeypatch.setattr(storage_tuning, "choose_storage", take_last)
    done = invoke("tune", *options(folder), "--bits", "4 group 32", "--keep", keep)
    *_, sentence, command = done.stdout.rstrip().splitlines()
    assert sentence.startswith(f"Index with {keep}, 4 group 32 bits, exit 4: the last; ")
    words = shlex.split(command)
    assert words[:2] == ["ridgerank", "store" if keep == "stride 1/3" else "index"]
    made = f"{folder}/store-tuned"
    assert made in words
    words[words.index(made)] = str(tmp_path / "made")
    extra = ("--device", "cpu") if words[1] == "store" else ("--device", "cpu", "--processes", "1")
    invoke(*words[1:], *extra)
    with PageStore.open(tmp_path / "made") as store:
        lineage = store.lineage
        assert (lineage.keep, lineage.key_bits, lineage.number_group, len(store)) == (keep, 4, 32, 40)
        assert lineage.max_pixels == 30 * 28 * 28


def test_a_budget_nothing_meets_says_what_the_smallest_takes(folder: Path) -> None:
    with pytest.raises(CalibrationError, match=r"fits into 0\.001 MB per page: the smallest, .* takes 0\.0"):
        invoke("tune", *options(folder), "--bits", "4 group 32", "--budget", "1KB")


def test_what_cannot_be_tried_is_refused_before_a_model_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = invoke("tune", *options(folder), "--budget", "1 megabyte", code=2)
    assert "--budget" in done.stderr
    with pytest.raises(CalibrationError, match="a budget and an agreement"):
        invoke("tune", *options(folder), "--budget", "1MB", "--agreement", 0.9)
    with pytest.raises(StoreError, match="bits spelled 'five'"):
        invoke("tune", *options(folder), "--bits", "five")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ExtraMissing, match=r"ridgerank\[plot\]"):
        invoke("tune", *options(folder), "--plot", tmp_path / "tune.png")
