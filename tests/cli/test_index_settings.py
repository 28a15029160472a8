"""`ridgerank index`: what a store that is there settles, and what is refused before a model is loaded."""

import json
import re
from pathlib import Path

import pytest
from ridgerank.cli.index_settings import IndexChoices, find_lineage, require_documents, settle_index

from miniature import weights
from ridgerank.errors import DocumentError, LineageMismatch, StoreError
from ridgerank.store.storage_setting import StorageSetting
from tests.backbones.small_text_models import build_text
from tests.cli.commands import invoke, run_process
from tests.conftest import write_pdf

SETTING = ("--exit-layer", 3, "--keep", "stride 1/2", "--bits", "4", "--max-pixels", 30 * 28 * 28)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("settled")
    write_pdf(folder / "first.pdf", pages=2)
    common = ("--store", folder / "pages", "--backbone", model_folder, "--processes", 1)
    invoke("index", folder / "first.pdf", *common, *SETTING)
    return folder / "pages"


def test_further_pages_take_the_model_and_the_setting_of_the_store(store: Path, model_folder: Path) -> None:
    write_pdf(store.parent / "second.pdf", pages=1, seed=3)
    done = invoke("index", store.parent / "second.pdf", "--store", store, "--processes", 1)
    assert "1 pages added" in done.stderr
    assert f"was made with {model_folder}, stride 1/2, 4 bits, exit 3: so are the new pages" in done.stderr
    assert json.loads(invoke("store", "info", store, "--json").stdout)["pages"] == 3


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            IndexChoices(keep="stride 1/4"),
            "made with --keep 'stride 1/2', not 'stride 1/4'; leave --keep out, or index into another store",
        ),
        (IndexChoices(exit_layer=2, bits="8"), "--bits '4', not '8', --exit-layer '3', not '2'"),
        (
            IndexChoices(preset="paper"),
            "made with stride 1/2, 4 bits, exit 3, and --preset paper is stride 1/3, 8 bits; leave --preset "
            "out, or index into another store",
        ),
    ],
)
def test_another_setting_is_refused_with_both_values_and_no_model(
    store: Path, choices: IndexChoices, message: str
) -> None:
    with pytest.raises(LineageMismatch) as caught:
        settle_index(choices, str(store))
    assert message in str(caught.value)


def test_another_model_is_refused_by_its_name_and_without_hashes(store: Path, documents: Path) -> None:
    words = ("--store", store, "--backbone", weights("mini-qwen"), "--processes", 1)
    with pytest.raises(LineageMismatch, match=r"model: .* there, '.*mini-qwen' here") as caught:
        invoke("index", documents / "good.pdf", *words)
    lineage = find_lineage(str(store))
    assert lineage is not None
    assert lineage.weights not in str(caught.value)
    assert lineage.prompt not in str(caught.value)


def test_a_model_of_another_kind_is_refused_by_its_name(store: Path, tmp_path: Path) -> None:
    text_model = build_text("qwen2", tmp_path / "text").folder
    settings = settle_index(IndexChoices(backbone=str(text_model)), str(store))
    with pytest.raises(LineageMismatch, match=r"was made with .*, and .*text cannot take its place"):
        settings.load_model(str(store))


def test_the_same_setting_may_be_typed_again(store: Path) -> None:
    settings = settle_index(IndexChoices(keep="stride 1/2", bits="4", exit_layer=3), str(store))
    assert (str(settings.keep), str(settings.numbers), settings.exit_layer) == ("stride 1/2", "4", 3)


def test_the_preset_of_the_store_may_be_typed_again_and_another_exit_layer_is_refused(
    tmp_path: Path, model_folder: Path
) -> None:
    write_pdf(tmp_path / "first.pdf", pages=1)
    words: list[object] = ["index", tmp_path / "first.pdf", "--backbone", model_folder, "--processes", 1]
    words += ["--max-pixels", 30 * 28 * 28, "--preset", "small"]
    invoke(*words, "--store", tmp_path / "pages")
    assert "0 pages added" in invoke(*words, "--store", tmp_path / "pages").stderr
    invoke(*words, "--store", tmp_path / "cut", "--exit-layer", 2)
    assert "0 pages added" in invoke(*words, "--store", tmp_path / "cut", "--exit-layer", 2).stderr
    with pytest.raises(LineageMismatch, match="made with --exit-layer 2, and --preset small is 4 for"):
        invoke(*words, "--store", tmp_path / "cut")


def test_after_a_refused_rule_the_corrected_command_works_in_the_same_folder(
    tmp_path: Path, model_folder: Path
) -> None:
    write_pdf(tmp_path / "first.pdf", pages=1)
    words: list[object] = ["index", tmp_path / "first.pdf", "--store", tmp_path / "pages"]
    words += ["--backbone", model_folder, "--max-pixels", 30 * 28 * 28, "--processes", 1]
    assert "1 pages added" in invoke(*words, "--keep", "value-norm 1/3").stderr


def test_a_new_store_takes_the_small_preset_and_the_paper_s_by_name(tmp_path: Path) -> None:
    model, new = str(weights("mini-glm")), str(tmp_path / "new")
    settings = settle_index(IndexChoices(backbone=model), new)
    assert (settings.preset, settings.keep, settings.numbers) == ("small", None, None)
    assert settle_index(IndexChoices(model, preset="paper"), new).preset == "paper"
    with pytest.raises(StoreError, match="no preset called 'tiny'; known: small, paper"):
        settle_index(IndexChoices(model, preset="tiny"), new)


@pytest.mark.parametrize(
    ("preset", "reads_text", "setting"),
    [
        ("paper", False, "stride 1/3, 8 bits, exit 21"),
        ("paper", True, "stride 1/3, 8 bits, exit 21"),
        ("small", False, "value-norm 1/5, 3/2 bits, exit 21"),
        ("small", True, "value-norm 1/2, 4/2 group 32 bits, exit 12"),
    ],
)
def test_a_preset_is_the_setting_that_docs_name(preset: str, reads_text: bool, setting: str) -> None:
    from ridgerank.store.storage_setting import parse_storage_preset

    chosen = StorageSetting.from_preset(parse_storage_preset(preset), layers=30, reads_text=reads_text)
    assert str(chosen) == setting


def test_every_preset_was_measured() -> None:
    """The settings of `small` are rows of results/compression.json, at the exit layer they give."""
    rows = json.loads(Path(__file__).parents[2].joinpath("results/compression.json").read_text())["rows"]
    measured = {
        (row["backbone"], f"{row['keep']}, {row['bits']} bits, exit {row['exit_layer']}") for row in rows
    }
    images = StorageSetting.from_preset("small", layers=8, reads_text=False)
    text = StorageSetting.from_preset("small", layers=30, reads_text=True)
    assert {("mini-qwen", str(images)), ("mini-glm", str(images)), ("smollm2-135m", str(text))} <= measured


def test_a_folder_without_documents_is_an_error_before_any_model(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.txt").write_text("no page")
    with pytest.raises(DocumentError, match=r"nothing to index under .*in; wanted files with one of"):
        require_documents([tmp_path / "in"])
    done = run_process("index", tmp_path / "in", "--store", tmp_path / "s", "--backbone", "no/such-model")
    assert done.returncode == 1
    assert "error: nothing to index" in done.stderr
    with pytest.raises(DocumentError, match="gone"):
        require_documents([tmp_path / "gone"])


def test_pruning_says_that_the_calibration_is_stale(folder: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(folder / "store", tmp_path / "store")
    some = sorted((folder / "docs").glob("*.pdf"))[0]
    done = invoke("index", some, "--store", tmp_path / "store", "--prune", "--processes", 1)
    assert re.search(r"the calibration .*default.* was fitted with them", done.stderr)
    assert f"run `ridgerank calibrate --store {tmp_path / 'store'}`" in done.stderr
