"""How the command shows its version and its errors."""

import subprocess
import sys
from pathlib import Path

from tests.cli.commands import RUN, run_process


def test_the_version_is_printed() -> None:
    from ridgerank.version import __version__

    assert run_process("--version").stdout == f"ridgerank {__version__}\n"


def test_an_error_is_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ridgerank.cli.main",
        "search",
        "--store",
        str(tmp_path / "none"),
        "query",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: no page store" in done.stderr
    assert "Traceback" not in done.stderr
    empty = subprocess.run([*command[:-1], " "], capture_output=True, text=True, check=False)
    assert "error: an empty query" in empty.stderr


def test_a_closed_pipe_is_no_traceback(world: Path) -> None:
    command = " ".join([*RUN, "fuse", f"{world}/retriever.trec", f"{world}/reranker.trec", "--weight 0.5"])
    done = subprocess.run(["bash", "-c", f"{command} | head -1"], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
