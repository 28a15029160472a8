import subprocess
import sys
from pathlib import Path

RUN = [sys.executable, "-m", "ridgerank.cli.main", "miniature", "draw"]


def draw(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_a_corpus_is_drawn_by_its_number_into_the_folder_itself(tmp_path: Path) -> None:
    done = draw("--out", tmp_path, "--corpus", 5)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "100 queries" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents", "qrels.trec", "queries.jsonl"]


def test_an_unknown_corpus_is_one_line_with_the_names_there_are(tmp_path: Path) -> None:
    done = draw("--out", tmp_path, "--corpus", "oak")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no corpus 'oak'; there are: 1 alder, 2 birch")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
