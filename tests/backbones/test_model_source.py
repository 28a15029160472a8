"""Where a model is found, and what is said of folders that hold none; no model is imported for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from ridgerank.backbones.model_settings import SHORT_NAMES, find_model
from ridgerank.errors import BackboneError


def test_a_name_leads_to_a_folder_a_file_or_a_repository(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    assert find_model(str(tmp_path)) == (str(tmp_path), "m.gguf")
    assert find_model(str(tmp_path / "m.gguf")) == (str(tmp_path), "m.gguf")
    assert find_model("Qwen2.5-VL-7B") == (SHORT_NAMES["qwen2.5-vl-7b"], None)
    assert find_model("owner/name") == ("owner/name", None)


def test_a_folder_without_a_model_says_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"holds no model: no config\.json and no GGUF file"):
        find_model(str(tmp_path))
    with pytest.raises(BackboneError, match="no backbone called"):
        find_model("x" * 5000)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["search", "--store", "none", "words"], "no page store at none"),
        (["rank", "--store", "none", "--queries", "q.jsonl", "--run", "r.trec"], "no page store at none"),
        (["serve", "--store", "none"], "no page store at none"),
        (["index", "docs", "--store", "new", "--backbone", "/no/such"], "no backbone called '/no/such'"),
        (["index", "empty", "--store", "new"], "nothing to index under empty"),
    ],
)
def test_a_wrong_path_is_reported_without_importing_torch(
    tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "docs" / "a.pdf").write_bytes(b"%PDF-1.4")
    (tmp_path / "q.jsonl").write_text('{"query_id": "q1", "text": "words"}\n')
    (tmp_path / "r.trec").write_text("q1 Q0 a.pdf#1 1 1.0 mine\n")
    code = (
        f"import sys\nfrom ridgerank.cli.main import main\nsys.argv = ['ridgerank', *{words!r}]\n"
        "try:\n    main()\nfinally:\n    print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert message in done.stderr
    assert done.stdout == "[]\n"
    assert done.returncode == 1
