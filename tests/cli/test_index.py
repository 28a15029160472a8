import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import write_pdf
from tests.retrievers.small_encoders import build

RUN = [sys.executable, "-m", "ridgerank.cli.main"]


def ridgerank(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    write_pdf(folder / "good.pdf", pages=3)
    (folder / "bad.pdf").write_text("not a PDF")
    return folder


@pytest.fixture(scope="module")
def indexed(documents: Path, model_folder: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    store = documents.parent / "store-of-cli"
    done = ridgerank(
        "index", documents, "--store", store, "--backbone", model_folder, "--max-pixels", 30 * 28 * 28
    )
    return store, done


def test_indexing_tells_what_it_did_and_says_by_its_status_that_a_file_was_bad(
    indexed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = indexed
    assert done.returncode == 3, done.stderr
    assert "not read: bad.pdf" in done.stderr
    assert "3 pages added, 0 stored before, 1 not read" in done.stderr
    assert "MB a page" in done.stderr
    assert done.stdout == ""


def test_info_is_a_table_for_people_and_json_for_machines(
    indexed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    store, _ = indexed
    facts = json.loads(ridgerank("store", "info", store, "--json").stdout)
    assert facts["pages"] == 3
    assert facts["lineage"]["exit_layer"] == 4
    assert facts["bytes_per_page"] == facts["prefix_bytes"] / 3
    assert "stride 1/3" in ridgerank("store", "info", store).stdout


def test_check_finds_a_flipped_byte_and_names_the_page(
    indexed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    store, _ = indexed
    assert ridgerank("store", "check", store).returncode == 0
    [data] = list((store / "data").iterdir())
    content = bytearray(data.read_bytes())
    place = content.index(b"RRPREFIX") + 2000
    content[place] ^= 1
    data.write_bytes(content)
    done = ridgerank("store", "check", store)
    content[place] ^= 1
    data.write_bytes(content)
    assert done.returncode == 1
    assert done.stdout.startswith("good.pdf#1: ")
    assert done.stdout.count("\n") == 1


def test_a_retriever_named_later_fills_in_vectors_and_is_remembered(
    documents: Path, model_folder: Path, tmp_path: Path
) -> None:
    encoder = build("colqwen2 on 2.5", tmp_path / "small-colqwen").folder
    store = tmp_path / "store"
    common = ["--store", store, "--backbone", model_folder, "--max-pixels", 30 * 28 * 28]
    assert ridgerank("index", documents / "good.pdf", *common).returncode == 0
    named = ridgerank("index", documents / "good.pdf", *common, "--retriever", encoder, "--pool", 2)
    assert named.returncode == 0, named.stderr
    assert "0 pages added, 3 stored before, 3 of them given vectors" in named.stderr
    facts = json.loads(ridgerank("store", "info", store, "--json").stdout)
    assert facts["retriever"]["source"] == str(encoder)
    assert facts["retriever"]["pool_factor"] == 2
    write_pdf(tmp_path / "more.pdf", pages=2, seed=5)
    remembered = ridgerank("index", tmp_path / "more.pdf", *common)
    assert f"holds vectors of {encoder}: new pages get theirs, too" in remembered.stderr
    assert remembered.returncode == 0, remembered.stderr
    assert "16 wide" in ridgerank("store", "info", store).stdout


def test_pages_that_cannot_be_rendered_again_are_told(
    documents: Path, model_folder: Path, tmp_path: Path
) -> None:
    encoder = build("colqwen2 on 2.5", tmp_path / "small-colqwen").folder
    common = ["--store", tmp_path / "store", "--backbone", model_folder, "--max-pixels", 30 * 28 * 28]
    assert ridgerank("index", documents / "good.pdf", *common).returncode == 0
    write_pdf(tmp_path / "more.pdf", pages=1, seed=5)
    done = ridgerank("index", tmp_path / "more.pdf", *common, "--retriever", encoder)
    assert done.returncode == 3
    assert (
        "3 stored pages have no vectors, good.pdf#1 among them: their documents were not given" in done.stderr
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--backbone", "no-such-model"), "no backbone called 'no-such-model'.*qwen2.5-vl-7b"),
        (("--keep", "all of them"), "wanted a rule and a fraction"),
        (("--dtype", "float8"), "no dtype called 'float8'"),
        (("--retriever", "colplai"), "no retriever called 'colplai'.*colpali-v1.3"),
        (("--retriever", "bm25"), "makes no vectors"),
        (("--device", "abacus"), "no device 'abacus' on this machine; there is cpu"),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_is_known(
    documents: Path, model_folder: Path, tmp_path: Path, options: tuple[str, str], reason: str
) -> None:
    given = {"--backbone": str(model_folder)} | dict([options])
    words = [word for pair in given.items() for word in pair]
    done = ridgerank("index", documents, "--store", tmp_path / "store", *words)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(reason, done.stderr)


def test_a_missing_store_says_how_to_make_one(tmp_path: Path) -> None:
    done = ridgerank("store", "info", tmp_path / "nothing")
    assert done.returncode == 1
    assert "make one with `ridgerank index`" in done.stderr


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
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run it again to go on" in rest
    assert "Traceback" not in rest
