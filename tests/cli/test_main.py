"""How the command shows its version and its errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ridgerank.version import __version__
from tests.cli.commands import RUN, run_process


def test_the_version_is_printed() -> None:
    assert run_process("--version").stdout == f"ridgerank {__version__}\n"


def test_an_error_is_one_line(tmp_path: Path) -> None:
    done = run_process("search", "--store", tmp_path / "none", "query")
    assert done.returncode == 1
    assert "error: no page store" in done.stderr
    assert "Traceback" not in done.stderr
    assert "error: query must not be empty" in run_process("search", "--store", tmp_path / "none", " ").stderr


def test_a_closed_pipe_is_no_traceback(world: Path) -> None:
    command = " ".join([*RUN, "fuse", f"{world}/retriever.trec", f"{world}/reranker.trec", "--weight 0.5"])
    done = subprocess.run(["bash", "-c", f"{command} | head -1"], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_one_line_not_a_traceback(world: Path) -> None:
    runs = [world / f"{name}.trec" for name in ("retriever", "reranker")]
    command = [*RUN, "fuse", *map(str, runs), "--weight", "0.5"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: [Errno 28] No space left on device"
    assert "Traceback" not in done.stderr
    done = run_process(*command[len(RUN) :], "--output", "/dev/full")
    assert done.stderr.startswith("error: /dev/full cannot be written: No space left on device")


@pytest.mark.parametrize("command", ["search", "rank", "calibrate"])
def test_words_that_are_not_utf_8_are_one_line_not_a_traceback(tmp_path: Path, command: str) -> None:
    (tmp_path / "q").write_bytes(b'{"query_id": 1, "text": "caf\xe9"}')
    words = [b"caf\xe9"] if command == "search" else [b"--queries", os.fsencode(tmp_path / "q")]
    more = [b"--run", os.fsencode(tmp_path / "q")] if command == "rank" else []
    done = subprocess.run([*RUN, command, "--store", "none", *words, *more], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: ")
    assert b"not UTF-8" in done.stderr


def test_what_is_printed_is_utf_8_in_any_locale() -> None:
    script = "import typer; from ridgerank.cli.main import run_app; run_app(lambda: typer.echo('→'))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert done.stdout.decode() == "→\n"


def test_a_closed_stream_stops_nothing(tmp_path: Path) -> None:
    command = f"{' '.join(RUN)} --version 2>&-"
    assert subprocess.check_output(command, shell=True, text=True).startswith("ridgerank")
    run = tmp_path / "run.trec"
    run.write_text("q Q0 a.pdf#1 1 2.0 t\nq Q0 a.pdf#2 2 1.0 t\n")
    subprocess.run(f"{' '.join(RUN)} fuse {run} {run} --weight 0.5 >&-", shell=True, check=True)
