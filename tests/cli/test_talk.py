"""How much commands say, where: --quiet and --verbose after the command, lines without a terminal, help."""

import re
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from ridgerank.cli.progress_bars import Bar, format_duration, format_speed
from ridgerank.cli.talk import hide_library_bars
from typer.main import get_command

from ridgerank.cli.main import app
from ridgerank.cli.search import shorten_middle
from tests.cli.commands import invoke
from tests.test_extras import leaf_commands

COMMANDS = sorted(leaf_commands(get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_short_help_and_takes_quiet_and_verbose(name: str) -> None:
    text = invoke(*name.split(), "-h").output
    assert all(option in text for option in ("--quiet", "-q", "--verbose", "-v"))


def test_quiet_after_the_command_leaves_only_the_data(world: Path) -> None:
    fuse = ("fuse", world / "retriever.trec", world / "reranker.trec", "--weight", 0.5)
    assert "weight 0.500" in invoke(*fuse).stderr
    assert invoke(*fuse, "--quiet").stderr == ""
    assert invoke("-q", *fuse).stderr == ""
    assert "weight 0.500" in invoke(*fuse).stderr
    assert "not both" in invoke(*fuse, "-q", "-v", code=2).output


def test_options_stand_in_groups_with_their_variables() -> None:
    text = invoke("search", "-h").output
    assert all(heading in text for heading in ("Model", "Retriever", "Ranking", "Output", "Many queries"))
    assert all(f"RIDGERANK_{name}" in text for name in ("STORE", "DEVICE", "DTYPE", "READOUT"))


def test_the_store_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgerank.errors import StoreError

    monkeypatch.setenv("RIDGERANK_STORE", str(tmp_path / "elsewhere"))
    with pytest.raises(StoreError, match=r"no page store at .*elsewhere"):
        invoke("search", "some words")


def test_there_is_completion_for_shells() -> None:
    assert "--install-completion" in invoke("--help").output


def test_without_a_terminal_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    printed = Event()

    class Watched(Bar):
        def say(self, text: str, **options: Any) -> None:  # noqa: ANN401
            super().say(text, **options)
            printed.set()

    with Watched("listing", line_seconds=0.01) as bar:
        assert printed.wait(60)
        bar.start("indexing", 10)
        bar.advance(4, rate="2.0 pages/s")
        assert re.fullmatch(r"indexing: 4 of 10, \d+ s, about \d+ s left, 2.0 pages/s", bar.line())
    assert "listing: 0 s" in capsys.readouterr().err


def test_durations_are_said_as_people_do() -> None:
    assert [format_duration(seconds) for seconds in (40, 700, 12600)] == ["40 s", "12 min", "3.5 h"]


def test_a_slow_speed_is_said_per_page() -> None:
    assert [format_speed(10, seconds) for seconds in (4.0, 350.0)] == ["2.5 pages/s", "35.0 s/page"]


def test_library_bars_are_off_unless_the_user_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "0")
    monkeypatch.setenv("TQDM_DISABLE", "")
    monkeypatch.delenv("TQDM_DISABLE")
    hide_library_bars()
    assert (os.environ["HF_HUB_DISABLE_PROGRESS_BARS"], os.environ["TQDM_DISABLE"]) == ("0", "1")


def test_a_long_name_is_cut_in_the_middle_and_keeps_its_page() -> None:
    name = "reports/2019/annual-report-of-the-north-sea-company-final.pdf#112"
    short = shorten_middle(name, 30)
    assert (len(short), short[-13:]) == (30, "final.pdf#112")
    assert short.startswith("reports")
    assert shorten_middle("a.pdf#1", 30) == "a.pdf#1"
