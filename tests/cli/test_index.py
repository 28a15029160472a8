"""`ridgerank index`."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ridgerank.errors import BackboneError, LineageMismatch, StoreError
from ridgerank.indexing.index import MODEL_CHOICES, index_documents
from ridgerank.lineage import StorageSetting
from ridgerank.store.layout import MODEL_SHAPES, count_page_bytes
from ridgerank.store.page_store import PageStore
from tests.cli.commands import invoke, run_process
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


def test_bits_are_an_option_that_the_store_remembers(
    documents: Path, model_folder: Path, tmp_path: Path
) -> None:
    common: list[object] = ["index", documents / "good.pdf", "--backbone", model_folder]
    common += ["--max-pixels", 30 * 28 * 28, "--processes", 1, "--keep", "value-norm 1/3"]
    common += ["--store", tmp_path / "store", "--bits"]
    with pytest.raises(StoreError, match="bits spelled 'five'"):
        invoke(*common, "five")
    invoke(*common, "4/3 group 16")
    with PageStore.open(tmp_path / "store") as opened:
        lineage = opened.lineage
    assert str(lineage.storage.numbers) == "4/3 group 16"
    with pytest.raises(
        LineageMismatch, match="made with --bits '4/3 group 16', not '4 group 16'; leave --bits out"
    ):
        invoke(*common, "4 group 16")


def test_a_retriever_named_later_fills_in_vectors_and_is_remembered(
    documents: Path, model_folder: Path, tmp_path: Path
) -> None:
    encoder = build("colqwen2 on 2.5", tmp_path / "small-colqwen").folder
    store = tmp_path / "store"
    common = ["--store", store, "--backbone", model_folder, "--max-pixels", 30 * 28 * 28]
    assert run_process("index", documents / "good.pdf", *common).returncode == 0
    named = run_process("index", documents / "good.pdf", *common, "--retriever", encoder)
    assert named.returncode == 0, named.stderr
    assert "0 pages added, 3 stored before, 3 of them given vectors" in named.stderr
    facts = json.loads(run_process("store", "info", store, "--json").stdout)
    assert facts["retriever"]["source"] == str(encoder)
    write_pdf(tmp_path / "more.pdf", pages=2, seed=5)
    remembered = run_process("index", tmp_path / "more.pdf", *common)
    assert f"holds vectors of {encoder}: new pages get theirs, too" in remembered.stderr
    assert remembered.returncode == 0, remembered.stderr
    assert "16 wide" in run_process("store", "info", store).stdout


def test_pages_that_cannot_be_rendered_again_are_told(
    documents: Path, model_folder: Path, tmp_path: Path
) -> None:
    encoder = build("colqwen2 on 2.5", tmp_path / "small-colqwen").folder
    common = ["--store", tmp_path / "store", "--backbone", model_folder, "--max-pixels", 30 * 28 * 28]
    assert run_process("index", documents / "good.pdf", *common).returncode == 0
    write_pdf(tmp_path / "more.pdf", pages=1, seed=5)
    done = run_process("index", tmp_path / "more.pdf", *common, "--retriever", encoder)
    assert done.returncode == 3
    assert (
        "3 stored pages have no vectors, good.pdf#1 among them: their documents were not given" in done.stderr
    )


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
    done = run_process("index", documents, "--store", tmp_path / "store", *words)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(reason, done.stderr)


def test_ctrl_c_says_that_it_can_go_on(model_folder: Path, tmp_path: Path) -> None:
    write_pdf(tmp_path / "in/long.pdf", pages=400)
    command = ["index", tmp_path / "in", "--store", tmp_path / "store", "--backbone", model_folder]
    # Tests started in the background inherit an ignored SIGINT, which Python then leaves ignored.
    listening = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from ridgerank.cli.main import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", listening, *map(str, command)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "stored already" in line:
            break
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "run it again to go on" in messages
    assert "Traceback" not in messages


def test_a_new_store_needs_a_model_and_the_error_names_three(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="needs a model") as caught:
        invoke("index", folder / "docs", "--store", tmp_path / "store")
    for each in MODEL_CHOICES:
        assert each.name in str(caught.value)
    assert "--backbone, or in RIDGERANK_BACKBONE" in str(caught.value)
    with pytest.raises(BackboneError, match="needs a model") as caught:
        index_documents(folder / "docs", tmp_path / "store")
    assert "--" not in str(caught.value)
    with pytest.raises(BackboneError, match="no backbone called"):
        invoke("index", folder / "docs", "--store", tmp_path / "store", "--backbone", "none")
    assert not (tmp_path / "store").exists()


def test_the_bytes_that_the_error_names_are_those_of_the_results_and_of_the_layout() -> None:
    first_hour = json.loads((ROOT / "results/first_hour.json").read_text())
    measured, *computed = MODEL_CHOICES
    assert measured.name.endswith(first_hour["backbone"])
    assert measured.page_megabytes == round(first_hour["bytes_per_page"] / 1e6, 2)
    for each in computed:
        shape = MODEL_SHAPES[each.name.rpartition("/")[2].lower().removesuffix("-instruct")]
        setting = StorageSetting.from_preset("small", layers=shape.layers, reads_text=False)
        assert each.page_megabytes == round(count_page_bytes(shape, setting) / 1e6, 2)
