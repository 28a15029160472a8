"""`ridgerank store`: what a store holds, and whether it is damaged."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ridgerank.store.layout import BASIS
from ridgerank.store.sidecar import remember_sources
from ridgerank.store.store_writer import StoreWriter
from tests.cli.commands import invoke, run_process
from tests.store.pages import LINEAGE, row


def test_info_is_a_table_for_people_and_json_for_machines(
    indexed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    store, _ = indexed
    facts = json.loads(run_process("store", "info", store, "--json").stdout)
    assert facts["pages"] == 3
    assert facts["lineage"]["exit_layer"] == 4
    assert facts["bytes_per_page"] == facts["prefix_bytes"] / 3
    table = run_process("store", "info", store).stdout
    assert "--keep 'stride 1/3' --exit-layer 4" in table


def test_nothing_that_a_store_holds_reaches_a_terminal_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    uri, first = str(tmp_path / "store"), row(0)
    hostile = replace(first, page=replace(first.page, references=("\x1b[31ma.pdf#1",)))
    with StoreWriter(uri, replace(LINEAGE, backbone="[red]\x1b[2J[/]")) as writer:
        writer.append([hostile])
    remember_sources(uri, {"\x1b[31ma.pdf": tmp_path / "[/]\r\udcff.pdf"})
    shown = invoke("store", "list", uri).stdout + invoke("store", "info", uri).stdout
    assert "[/]\\r\\udcff.pdf" in shown
    assert "\\x1b[31ma.pdf" in shown
    assert "[red]\\x1b[2J[/]" in shown
    assert all(line.isprintable() for line in shown.splitlines())


def test_check_finds_a_flipped_byte_and_names_the_page(
    indexed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    store, _ = indexed
    assert run_process("store", "check", store).returncode == 0
    data = next(file for file in (store / "data").iterdir() if b"RRPREFIX" in file.read_bytes())
    content = bytearray(data.read_bytes())
    position = content.index(b"RRPREFIX") + 2000
    content[position] ^= 1
    data.write_bytes(content)
    done = run_process("store", "check", store)
    content[position] ^= 1
    data.write_bytes(content)
    assert done.returncode == 1
    assert re.match(r"good\.pdf#\d: ", done.stdout)
    assert done.stdout.count("\n") == 1


def test_check_of_a_store_without_its_basis_says_one_thing(
    documents: Path, model_folder: Path, tmp_path: Path
) -> None:
    coded = tmp_path / "coded"
    words = ("--backbone", model_folder, "--max-pixels", 30 * 28 * 28, "--preset", "small")
    invoke("index", documents / "good.pdf", "--store", coded, *words)
    (coded / BASIS).unlink()
    done = invoke("store", "check", coded, code=1)
    assert done.stdout.count("\n") == 1
    assert "none of its 3 pages can be read without _basis.safetensors" in done.stderr
    assert "index the documents into a new store" in done.stderr
    assert "remove" not in done.stdout + done.stderr


def test_a_removed_document_is_found_neither_by_list_nor_by_search(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(folder / "store", store)
    listed = [json.loads(line) for line in invoke("store", "list", store, "--json").stdout.splitlines()]
    name, pages = listed[0]["name"], listed[0]["pages"]
    assert name in invoke("store", "list", store).stdout
    done = invoke("store", "remove", store, name)
    assert f"{pages} pages removed" in done.stderr
    assert name not in invoke("store", "list", store).stdout
    words = ("search", "--store", store, "--device", "cpu", "--json", "--candidates", 40, "--top", 40)
    found = json.loads(invoke(*words, "margin of Norway").stdout)
    assert {page["reference"].rpartition("#")[0] for page in found["pages"]}.isdisjoint({name})


def test_check_reads_the_calibrations(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(folder / "store", store)
    assert "all as they were written" in invoke("store", "check", store).stderr
    path = store / "calibrations/default.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert "calibration default: " in invoke("store", "check", store, code=1).stdout
