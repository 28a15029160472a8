"""The tutorial is followed: its commands and snippets run in order, and print what it shows."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import invoke

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(console|python)\n(.*?)^```", TUTORIAL, flags=re.S | re.M)
SETTINGS = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "COLUMNS": "100",
    "CUDA_VISIBLE_DEVICES": "",
}


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the lines shown below it."""
    for typed in block.removeprefix("$ ").split("\n$ "):
        command, *shown = typed.rstrip("\n").split("\n")
        yield command, shown


def run(command: str, folder: Path) -> str:
    """Run a command; `ridgerank` runs in this process, where its libraries are imported once."""
    words = shlex.split(command)
    if words[0] == "ridgerank":
        return invoke(*words[1:]).output
    words = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(words, cwd=folder, env=SETTINGS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def printed(shown: str, output: str) -> bool:
    """Whether a line was printed, `…` standing for anything and white space for white space."""
    parts = re.split(r"\s*…\s*", " ".join(shown.split()))
    pattern = ".*".join(re.escape(part) for part in parts)
    return any(re.fullmatch(pattern, " ".join(line.split())) for line in output.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_tutorial_can_be_followed_and_gains_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "miniature").symlink_to(ROOT / "miniature")
    for kind, block in BLOCKS:
        if kind == "python":
            run(f"python -c {shlex.quote(block)}", tmp_path)
            continue
        for command, shown in commands(block):
            output = run(command, tmp_path)
            for line in shown:
                assert printed(line, output), f"{command}\nshould print {line!r} and printed\n{output}"
    before, after = (
        json.loads(line)["nDCG@5"]
        for run_file in ("candidates.trec", "reranked.trec")
        for line in run(f"ridgerank evaluate {run_file} --qrels judged.trec", tmp_path).splitlines()
    )
    assert after > before + 5
    assert len(list((tmp_path / "why").glob("*.png"))) == 3
