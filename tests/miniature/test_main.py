import os
import subprocess
import sys
from pathlib import Path

RUN = [sys.executable, "-m", "miniature", "draw"]


def draw(*arguments: object, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [*RUN, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment
    )


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


def test_another_process_draws_the_same_bytes(tmp_path: Path) -> None:
    drawn = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        assert draw("--out", folder, "--corpus", "juniper", hash_seed=hash_seed).returncode == 0
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        drawn.append({path.relative_to(folder): path.read_bytes() for path in files})
    assert drawn[0] == drawn[1]
