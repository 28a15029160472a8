"""`ridgerank index`: what it prints, what a store that is there decides, and what is refused at once."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from miniature import weights
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.readout_file import ReadoutFile, shipped_readouts
from ridgerank.cli.index import require_documents, resolve_settings
from ridgerank.errors import (
    ArtifactError,
    BackboneError,
    DocumentError,
    LineageMismatch,
    RidgeRankError,
    StoreError,
)
from ridgerank.indexing.index import MODEL_CHOICES, describe_models, index_documents
from ridgerank.lineage import IMAGE_QUALITY, TEXT_QUALITY, StorageSetting
from ridgerank.store.lance_dataset import find_lineage
from ridgerank.store.layout import MODEL_SHAPES, count_page_bytes, find_shape
from tests.backbones.small_text_models import build_text
from tests.calibrated_store import random_calibration, write_reports
from tests.cli.commands import invoke
from tests.conftest import write_pdf
from tests.retrievers.small_encoders import build

ROOT = Path(__file__).parents[2]


def test_indexing_tells_what_it_did_and_says_by_its_status_that_a_file_was_bad(
    indexed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = indexed
    assert done.returncode == 3, done.stderr
    assert "not read: bad.pdf" in done.stderr
    assert "3 pages added, 0 stored before, 1 not read" in done.stderr
    assert "MB a page" in done.stderr
    assert done.stdout == ""


def test_a_retriever_named_later_is_remembered_fills_in_vectors_and_tells_pages_left_without(
    documents: Path, model_folder: Path, tmp_path: Path
) -> None:
    encoder = build("colqwen2 on 2.5", tmp_path / "small-colqwen").folder
    store = tmp_path / "store"
    common = ["--store", store, "--backbone", model_folder, "--max-pixels", 30 * 28 * 28]
    invoke("index", documents / "good.pdf", *common)
    write_pdf(tmp_path / "more.pdf", pages=1, seed=5)
    named = invoke("index", tmp_path / "more.pdf", *common, "--retriever", encoder, code=3)
    left = "3 stored pages have no vectors, good.pdf#1 among them: their documents were not given"
    assert left in named.stderr
    facts = json.loads(invoke("store", "info", store, "--json").stdout)
    assert facts["retriever"]["source"] == str(encoder)
    assert "16 wide" in invoke("store", "info", store).stdout
    remembered = invoke("index", documents / "good.pdf", *common)
    assert f"holds vectors of {encoder}: new pages get theirs, too" in remembered.stderr
    assert "0 pages added, 3 stored before, 3 of them given vectors" in remembered.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--backbone", "no-such-model"), "no backbone called 'no-such-model'.*qwen2.5-vl-7b"),
        (("--keep", "all of them"), "expected a rule and a fraction"),
        (("--dtype", "float8"), "no dtype called 'float8'"),
        (("--retriever", "colplai"), "no retriever called 'colplai'.*colpali-v1.3"),
        (("--retriever", "bm25"), "makes no vectors"),
        (("--device", "abacus"), "no device 'abacus' on this machine; there is cpu"),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_is_known(
    documents: Path, model_folder: Path, tmp_path: Path, options: tuple[str, str], reason: str
) -> None:
    chosen = {"--backbone": str(model_folder)} | dict([options])
    words = [word for pair in chosen.items() for word in pair]
    with pytest.raises(RidgeRankError, match=reason) as caught:
        invoke("index", documents, "--store", tmp_path / "store", *words)
    assert "\n" not in str(caught.value)


def test_a_new_store_needs_a_model_and_the_error_names_three(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="needs a model") as caught:
        invoke("index", folder / "docs", "--store", tmp_path / "store")
    assert all(name in str(caught.value) for name in MODEL_CHOICES)
    assert "--backbone, or in RIDGERANK_BACKBONE" in str(caught.value)
    with pytest.raises(BackboneError, match="needs a model") as caught:
        index_documents(folder / "docs", tmp_path / "store")
    assert "--" not in str(caught.value)
    with pytest.raises(BackboneError, match="no backbone called"):
        invoke("index", folder / "docs", "--store", tmp_path / "store", "--backbone", "none")
    assert not (tmp_path / "store").exists()
    lines = describe_models("pages").splitlines()[1:]
    for (name, (short_name, reads)), line in zip(MODEL_CHOICES.items(), lines, strict=True):
        assert find_shape(name) == MODEL_SHAPES[short_name]
        assert reads in line
        assert re.search(r"about \d+\.\d\d MB a page$", line)


@pytest.mark.parametrize("stored", [False, True])
def test_a_dry_run_counts_pages_and_measures_bytes_and_leaves_nothing_behind(
    documents: Path, model_folder: Path, tmp_path: Path, stored: bool
) -> None:
    store = tmp_path / "store"
    options: list[object] = ["--store", store, "--backbone", model_folder, "--max-pixels", 30 * 28 * 28]
    if stored:
        invoke("index", write_pdf(tmp_path / "other.pdf", pages=1, seed=8), *options)
    before = sorted(path for path in tmp_path.rglob("*"))
    dry = invoke("index", documents / "good.pdf", *options, "--dry-run").stdout
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert dry.startswith("pages: 3, 0 of them stored already\n")
    assert re.search(r"^time: about \d.* \(measured on 2 pages\)$", dry, flags=re.M)
    said = re.search(r"^bytes: about .* \((\d+\.\d\d) MB a page, measured on 2 pages\)$", dry, flags=re.M)
    assert said is not None
    done = invoke("index", documents / "good.pdf", *options)
    assert f"{said[1]} MB a page" in done.stderr
    again = invoke("index", documents / "good.pdf", *options, "--dry-run").stdout
    assert again == "pages: 3, 3 of them stored already\n"


def test_a_dry_run_with_a_model_that_is_not_here_counts_bytes_by_its_shape(
    documents: Path, tmp_path: Path
) -> None:
    words = ("index", documents / "good.pdf", "--store", tmp_path / "store", "--dry-run", "--backbone")
    dry = invoke(*words, "qwen2.5-vl-3b").stdout
    setting = StorageSetting.from_preset("small", layers=36, reads_text=False)
    size = f"{count_page_bytes(find_shape('qwen2.5-vl-3b'), setting) / 1e6:.2f}"
    assert f"({size} MB a page, by the model's shape)" in dry
    assert "time: unknown, as the model is not on this machine" in dry
    for unknown in ("nobody/no-such-model", "owner/name@revision"):
        assert "bytes: unknown, as the model is not on" in invoke(*words, unknown).stdout
    assert not (tmp_path / "store").exists()


def test_pages_that_are_blank_to_a_text_model_are_counted_with_advice(tmp_path: Path) -> None:
    model = build_text("qwen2", tmp_path / "text").folder
    write_pdf(tmp_path / "in/scan.pdf", pages=2)
    words = ("--store", tmp_path / "s", "--backbone", model, "--device", "cpu")
    done = invoke("index", tmp_path / "in", *words)
    assert "warning: 2 stored pages have no text, scan.pdf#1 among them" in done.stderr
    assert "index into a new store with --ocr" in done.stderr


SETTING = ("--exit-layer", 3, "--keep", "stride 1/2", "--quality", "2", "--max-pixels", 30 * 28 * 28)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("settled")
    write_pdf(folder / "first.pdf", pages=2)
    common = ("--store", folder / "pages", "--backbone", model_folder)
    invoke("index", folder / "first.pdf", *common, *SETTING)
    return folder / "pages"


def test_further_pages_take_the_model_and_the_setting_of_the_store(store: Path, model_folder: Path) -> None:
    write_pdf(store.parent / "second.pdf", pages=1, seed=3)
    done = invoke("index", store.parent / "second.pdf", "--store", store)
    assert "1 pages added" in done.stderr
    assert f"was made with {model_folder}, stride 1/2, quality 2, exit 3: so are the new pages" in done.stderr
    assert json.loads(invoke("store", "info", store, "--json").stdout)["pages"] == 3


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            {"keep": "stride 1/4"},
            "made with --keep 'stride 1/2', not 'stride 1/4'; leave --keep out, or index into another store",
        ),
        ({"exit_layer": 2, "quality": "1"}, "--quality '2.0', not '1.0', --exit-layer '3', not '2'"),
        (
            {"preset": "paper"},
            "made with --preset 'stride 1/2, quality 2, exit 3', not 'stride 1/3, int8, exit 3'; leave "
            "--preset out, or index into another store",
        ),
    ],
)
def test_another_setting_is_refused_with_both_values_and_no_model(
    store: Path, typed: dict[str, Any], message: str
) -> None:
    with pytest.raises(LineageMismatch) as caught:
        resolve_settings(str(store), ModelSettings(""), **typed)
    assert message in str(caught.value)


def test_another_model_is_refused_by_its_name_and_without_hashes(store: Path, documents: Path) -> None:
    words = ("--store", store, "--backbone", weights("mini-qwen"))
    with pytest.raises(LineageMismatch, match=r"model: .* there, '.*mini-qwen' here") as caught:
        invoke("index", documents / "good.pdf", *words)
    lineage = find_lineage(str(store))
    assert lineage is not None
    assert lineage.weights not in str(caught.value)
    assert lineage.prompt not in str(caught.value)


def test_a_model_of_another_kind_is_refused_by_its_name(store: Path, tmp_path: Path) -> None:
    text_model = build_text("qwen2", tmp_path / "text").folder
    settings = resolve_settings(str(store), ModelSettings(str(text_model)))
    with pytest.raises(LineageMismatch, match=r"was made with .*, and .*text cannot take its place"):
        settings.load_model(str(store))


def test_the_preset_of_the_store_may_be_typed_again(tmp_path: Path, model_folder: Path) -> None:
    write_pdf(tmp_path / "first.pdf", pages=1)
    words: list[object] = ["index", tmp_path / "first.pdf", "--backbone", model_folder]
    words += ["--max-pixels", 30 * 28 * 28, "--preset", "small"]
    invoke(*words, "--store", tmp_path / "pages")
    assert "0 pages added" in invoke(*words, "--store", tmp_path / "pages").stderr
    invoke(*words, "--store", tmp_path / "cut", "--exit-layer", 2)
    assert "0 pages added" in invoke(*words, "--store", tmp_path / "cut", "--exit-layer", 2).stderr


def test_a_new_store_takes_the_small_preset_and_the_paper_s_by_name(tmp_path: Path) -> None:
    model, new = ModelSettings(str(weights("mini-glm"))), str(tmp_path / "new")
    for name, reads_text, expected in (
        (None, False, f"value-norm 1/5, quality {IMAGE_QUALITY:g}, exit 21"),
        (None, True, f"value-norm 1/2, quality {TEXT_QUALITY:g}, exit 12"),
        ("paper", False, "stride 1/3, int8, exit 21"),
        ("paper", True, "stride 1/3, int8, exit 21"),
    ):
        storage = resolve_settings(new, model, preset=name).storage(layers=30, reads_text=reads_text)
        assert str(storage) == expected
    with pytest.raises(StoreError, match="no preset called 'tiny'; known: small, paper"):
        resolve_settings(new, model, preset="tiny")


def test_every_preset_was_measured() -> None:
    """The settings of `small` are rows of results/compression.json, at the exit layer they give."""
    rows = json.loads(Path(__file__).parents[2].joinpath("results/compression.json").read_text())["rows"]
    measured = {(row["backbone"], row["setting"]) for row in rows}
    images = StorageSetting.from_preset("small", layers=8, reads_text=False)
    text = StorageSetting.from_preset("small", layers=30, reads_text=True)
    assert {("mini-qwen", str(images)), ("mini-glm", str(images)), ("smollm2-135m", str(text))} <= measured


def test_a_folder_without_documents_is_an_error_before_any_model(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.txt").write_text("no page")
    with pytest.raises(DocumentError, match=r"nothing to index under .*in; expected files with one of"):
        require_documents([tmp_path / "in"])
    with pytest.raises(DocumentError, match="gone"):
        require_documents([tmp_path / "gone"])


def test_pruning_says_that_the_calibration_is_stale(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "store", tmp_path / "store")
    some = sorted((folder / "docs").glob("*.pdf"))[0]
    done = invoke("index", some, "--store", tmp_path / "store", "--prune")
    assert re.search(r"the calibration .*default.* was fitted with them", done.stderr)
    assert f"run `ridgerank calibrate --store {tmp_path / 'store'}`" in done.stderr


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return load_backbone(build_text("llama", tmp_path_factory.mktemp("text-model")).folder)


def index_text(folder: Path, model: Backbone, store: str, *more: object) -> str:
    if not (folder / "docs").exists():
        write_reports(folder / "docs", pages=20)
    words = (folder / "docs", "--store", folder / store, "--backbone", model.name)
    return " ".join(invoke("index", *words, "--device", "cpu", *more).stderr.split())


def test_a_shipped_readout_makes_a_new_store_searchable_at_once_and_another_models_does_not(
    text_model: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "before the first search: ridgerank calibrate" in index_text(tmp_path, text_model, "bare")
    lineage = find_lineage(str(tmp_path / "bare"))
    assert lineage is not None
    file = ReadoutFile.of(random_calibration(lineage, text_model.geometry.width), text_model)
    file.save(tmp_path / "tiny.ridge")
    shipped = {"tiny": tmp_path / "tiny.ridge"}
    monkeypatch.setattr("ridgerank.calibration.readout_file.shipped_readouts", lambda: shipped)
    said = index_text(tmp_path, text_model, "at-once")
    assert "can be searched: its readout is tiny; `ridgerank calibrate` fits one to these pages" in said
    options = ("--store", tmp_path / "at-once", "--device", "cpu", "--json")
    assert json.loads(invoke("search", "margin of Norway", *options).stdout)["weight"] == 0.5
    assert "the readout tiny" in (tmp_path / "at-once/calibrations/default.json").read_text()

    other = replace(file, probe=replace(file.probe, scores=file.probe.scores[:, ::-1]))
    other.save(tmp_path / "tiny.ridge")
    said = index_text(tmp_path, text_model, "calibrated")
    assert re.search(r"tiny is not one for .* correlate at .*: calibrating instead", said)
    report = json.loads((tmp_path / "calibrated/calibrations/default.json").read_text())
    assert report["diagnostics"]["lists"] >= 16
    with pytest.raises(ArtifactError, match="was not made with"):  # asked for, it is refused
        index_text(tmp_path, text_model, "refused", "--readout", "tiny")
    monkeypatch.setattr("ridgerank.calibration.calibrate.LEAST_LISTS", 1000)
    assert "not calibrated: " in index_text(tmp_path, text_model, "few")


def test_every_shipped_readout_is_whole_small_and_says_what_it_was_fitted_on() -> None:
    for name, path in shipped_readouts().items():
        file = ReadoutFile.load(path)
        assert (file.licence, file.calibration.diagnostics.lists >= 64) == ("CC0-1.0", True), name
        assert len(file.fitted_on) >= 5
        assert file.source.endswith(".gguf") or "/" not in file.source
        assert path.stat().st_size < 100_000
