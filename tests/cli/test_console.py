"""What commands print beside their data, and options that several of them share."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ridgerank.cli._console import Bar, format_duration
from ridgerank.cli.index import FAILURES_SHOWN, _show_progress, format_speed
from ridgerank.documents.sources import Failure
from ridgerank.errors import StoreError
from ridgerank.indexing.index import IndexProgress
from ridgerank.store.lance_dataset import local_root
from tests.cli.commands import invoke


def test_quiet_before_or_after_the_command_leaves_only_the_data(world: Path) -> None:
    fuse = ("fuse", world / "retriever.trec", world / "reranker.trec", "--weight", 0.5)
    assert "weight 0.500" in invoke(*fuse).stderr
    assert invoke(*fuse, "--quiet").stderr == ""
    assert invoke("-q", *fuse).stderr == ""
    assert "weight 0.500" in invoke(*fuse).stderr
    assert "not together" in invoke(*fuse, "-q", "-v", code=2).output


def test_the_store_may_come_from_the_environment_and_a_tilde_after_an_equals_sign_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIDGERANK_STORE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreError, match=f"no page store at {tmp_path}/elsewhere"):
        invoke("search", "some words")
    for typed, named in (("~/pages", f"{tmp_path}/pages"), ("~nobody-here/pages", "~nobody-here/pages")):
        with pytest.raises(StoreError, match=f"no page store at {named}"):
            invoke("search", f"--store={typed}", "some words")
    assert local_root("~/pages") == tmp_path / "pages"


def test_without_a_terminal_progress_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bar("listing") as bar:
        bar.start("indexing", 10)
        bar.advance(1)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("ridgerank.cli._console.LINE_SECONDS", 0.0)
        bar.advance(3, rate="2.0 pages/s")
    line = capsys.readouterr().err.strip()
    assert re.fullmatch(r"indexing: 4 of 10, \d+ s, about \d+ s left, 2.0 pages/s", line)


@pytest.mark.parametrize("quiet", [False, True])
def test_downloads_show_how_far_they_are_and_other_libraries_nothing(quiet: bool) -> None:
    script = f"""
import sys
sys.argv = ["ridgerank", *["--quiet"] * {quiet}, "evaluate", "-h"]
from ridgerank.cli.main import main
try:
    main()
except SystemExit:
    pass
from ridgerank.cli._console import set_verbosity
set_verbosity(quiet={quiet}, verbose=False)
from huggingface_hub.utils.tqdm import _create_progress_bar, tqdm
from tqdm import tqdm as plain
_create_progress_bar(cls=tqdm, log_level=20, desc="16 GB", total=2).update()
plain([1, 2], desc="other")
"""
    environment = {
        name: value for name, value in os.environ.items() if "TQDM" not in name and "HF_" not in name
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert ("16 GB" in done.stderr) != quiet
    assert "other" not in done.stderr


def test_durations_and_speeds_are_written_in_the_unit_that_fits() -> None:
    assert [format_duration(seconds) for seconds in (40, 700, 12600)] == ["40 s", "12 min", "3.5 h"]
    assert [format_speed(10, seconds) for seconds in (4.0, 350.0)] == ["2.5 pages/s", "35.0 s/page"]


def test_a_file_that_loses_many_pages_gets_few_lines() -> None:
    printed: list[str] = []

    class Lines(Bar):
        def echo(self, text: str, **_: Any) -> None:  # noqa: ANN401
            printed.append(text)

    show = _show_progress(Lines())
    for number in range(1, 300):
        failure = Failure(f"report.pdf#{number}", "the page is damaged; repair it")
        show(IndexProgress(failure=failure))
    show(IndexProgress(failure=Failure("other.pdf", "not a PDF; leave it out")))
    assert len(printed) == FAILURES_SHOWN + 2
    assert printed[-2] == "not read: more pages of report.pdf, for the same reason"
    assert printed[-1] == "not read: other.pdf: not a PDF; leave it out"


def test_options_that_do_not_fit_together_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "q.trec").write_text("q0 0 report-0.pdf#1 1\n")
    for option in ("--run", "--qrels"):
        said = invoke("calibrate", option, "q.trec", "--store", "store", code=2).output
        assert "needed by --qrels and --run" in " ".join(said.replace("│", " ").split())
