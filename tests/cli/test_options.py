"""Options that several commands share, and options that do not fit together."""

from pathlib import Path

import pytest
from typer import BadParameter

from ridgerank.cli.options import parse_size
from tests.cli.commands import invoke


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


@pytest.mark.parametrize(("text", "nbytes"), [("500MB", 5e8), ("1.5 gb", 1.5e9), ("2TB", 2e12)])
def test_sizes_are_read_as_people_write_them(text: str, nbytes: float) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "12", "GB", "-1GB", "1 PB"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="wanted a number"):
        parse_size(text)
