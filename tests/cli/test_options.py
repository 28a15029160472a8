"""Options that several commands share, and options that do not fit together."""

from pathlib import Path

import pytest
from ridgerank.cli.talk import expand_home

from ridgerank.store.lance_dataset import local_root
from ridgerank.store.store_writer import StoreWriter
from tests.cli.commands import invoke
from tests.store.pages import LINEAGE


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("calibrate", "--run", "r"), "--run needs the queries"),
        (("calibrate", "--qrels", "q.trec"), "judgements need the queries"),
        (("calibrate", "--make", "magic"), "wanted auto, text or model"),
        (("rank", "--queries", "q", "--run", "r", "--tag", "two words"), "wanted one word"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    folder: Path, run: object, words: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "q.trec").write_text("q0 0 report-0.pdf#1 1\n")
    assert reason in " ".join(invoke(*words, "--store", "store", code=2).output.replace("│", " ").split())


def test_a_tilde_is_the_home_folder_in_every_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("store", "uri"):
        assert expand_home(name, "~/pages") == str(tmp_path / "pages")
    assert expand_home("paths", [Path("~/a"), Path("b~")]) == [tmp_path / "a", Path("b~")]
    assert expand_home("query", "~/pages") == "~/pages"
    assert local_root("~/pages") == tmp_path / "pages"


def test_a_store_under_the_home_folder_lies_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    StoreWriter("~/pages", LINEAGE).close()
    assert not (tmp_path / "~").exists()
    assert (tmp_path / "home/pages/_versions").is_dir()
    assert (tmp_path / "home/pages/_seals.json").exists()
