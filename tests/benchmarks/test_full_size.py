"""The rehearsal at full size, run with a tiny configuration of the same form."""

import json
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.full_size import (
    QUERIES,
    STORE_BAR,
    VISUAL_POSITIONS,
    compute_once,
    count_positions,
    draw_documents,
    load_alone,
    page_arithmetic,
    rehearse,
    watch,
)
from benchmarks.full_size_agreement import agreement
from benchmarks.full_size_model import write_checkpoint
from benchmarks.model_tables import format_full_size
from tests.backbones.small_models import build


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder: flat configuration, tokenizer, processor settings, no weights."""
    folder = build("qwen2_5_vl", tmp_path_factory.mktemp("published")).folder
    (folder / "model.safetensors").unlink()
    settings = json.loads((folder / "config.json").read_text())
    decoder = settings.pop("text_config")
    decoder.pop("model_type")
    # Heads of 128 channels, as large models have: scales are then a small part of a page.
    rotary = decoder["rope_parameters"] | {"mrope_section": [16, 24, 24]}
    decoder |= {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2} | {
        "rope_parameters": rotary
    }
    settings["vision_config"]["out_hidden_size"] = 256
    (folder / "config.json").write_text(json.dumps(decoder | settings))
    return folder


@pytest.fixture(scope="module")
def checkpoint(configuration: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("work") / "tiny"
    return folder, write_checkpoint(configuration, folder)


@pytest.mark.slow
def test_a_checkpoint_is_written_once_and_its_weights_are_counted(
    configuration: Path, checkpoint: tuple[Path, int]
) -> None:
    folder, weight_bytes = checkpoint
    assert write_checkpoint(configuration, folder) == weight_bytes
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert weight_bytes <= stored < weight_bytes + 100_000
    loaded = load_alone(folder)
    assert loaded["peak_bytes"] > weight_bytes


@pytest.mark.slow
def test_every_step_runs_and_a_second_run_repeats_none(checkpoint: tuple[Path, int]) -> None:
    folder, weight_bytes = checkpoint
    report = rehearse(folder, weight_bytes, folder.parent, 2)
    assert [step["command"].split()[1] for step in report["steps"]] == ["index", "search"]
    assert report["pages"] == 2
    assert abs(report["bytes_per_page_above_arithmetic"]) <= STORE_BAR
    assert rehearse(folder, weight_bytes, folder.parent, 2) == report
    loading = {"load_cpu_seconds": 3.0, "fingerprint_cpu_seconds": 1.5}
    table = format_full_size({"model": "tiny", "loading": loading, "rehearsal": report})
    for cell in ("| 2 |", f"{report['bytes_per_page']:,}", "3.0 s, 1.5 s", "`ridgerank index"):
        assert cell in table


def test_pages_have_the_positions_that_are_counted_with(checkpoint: tuple[Path, int]) -> None:
    folder, _ = checkpoint
    positions = count_positions(folder)
    assert VISUAL_POSITIONS / 3 < positions < VISUAL_POSITIONS / 3 + 60
    settings = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2}
    assert page_arithmetic(settings, 21, 427) == 21 * 2 * 2 * 128 * 427


def test_documents_are_one_page_each_and_queries_are_sixteen(tmp_path: Path) -> None:
    queries = draw_documents(tmp_path / "documents", 3)
    assert len(list((tmp_path / "documents").iterdir())) == 3
    assert len(queries.read_text().splitlines()) == QUERIES


def test_a_part_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    assert compute_once(path, lambda: [1]) == compute_once(path, lambda: [2]) == [1]


def test_agreement_counts_pairs_and_first_pages() -> None:
    whole = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    assert agreement(whole, whole) == {"same_order": 1.0, "same_first": 1.0, "error_of_spread": 0.0}
    half = np.array([[1.0, 3.0, 2.0], [3.0, 2.0, 1.0]])
    assert agreement(half, whole)["same_order"] == pytest.approx(5 / 6, abs=1e-4)
    assert agreement(half, whole)["same_first"] == 0.5


def test_a_command_that_fails_ends_the_run() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        watch(psutil.Popen(["python3", "-c", "raise SystemExit(3)"]))
