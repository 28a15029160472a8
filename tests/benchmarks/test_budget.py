"""The budget counts what it says; `make lint` checks it."""

from pathlib import Path

from benchmarks.budget import count_concepts, measure_sizes


def test_lines_files_and_words_are_counted_by_folder(tmp_path: Path) -> None:
    files = {
        "src/package/module.py": "one = 1\ntwo = 2\n",
        "src/package/static/page.js": "let one;\n",
        "experiments/trial.py": "one = 1\n",
        "miniature/draw.py": "one = 1\n",
        "README.md": "three words here\n",
        "CHANGELOG.md": "not counted\n",
        "results/README.md": "not counted\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    names = ("src_lines", "src_modules", "page_lines", "experiments_lines", "docs_words", "tests_lines")
    sizes = measure_sizes(tmp_path, [tmp_path / name for name in files], names)
    assert (sizes["src_lines"], sizes["src_modules"], sizes["page_lines"]) == (2, 1, 1)
    assert (sizes["experiments_lines"], sizes["docs_words"], sizes["tests_lines"]) == (2, 3, 0)


def test_concepts_of_the_project_are_counted() -> None:
    counts = count_concepts(Path(__file__).parents[2])
    assert sum(count > 0 for count in counts.values()) >= len(counts) - 1  # of one there may be none
