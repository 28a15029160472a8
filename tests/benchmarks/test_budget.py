"""The budget counts what it says; `make lint` checks it."""

import ast
from pathlib import Path

from benchmarks.budget import count_concepts, measure_sizes, single_importer_modules

ROOT = Path(__file__).parents[2]


def write(root: Path, files: dict[str, str]) -> list[Path]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [root / name for name in files]


def test_lines_files_and_words_are_counted_by_folder(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        {
            "src/package/module.py": "one = 1\ntwo = 2\n",
            "src/package/static/page.js": "let one;\n",
            "experiments/trial.py": "one = 1\n",
            "miniature/draw.py": "one = 1\n",
            "README.md": "three words here\n",
            "CHANGELOG.md": "not counted\n",
            "results/README.md": "not counted\n",
        },
    )
    names = ("src_lines", "src_modules", "page_lines", "experiments_lines", "docs_words", "tests_lines")
    sizes = measure_sizes(tmp_path, files, names)
    assert (sizes["src_lines"], sizes["src_modules"], sizes["page_lines"]) == (2, 1, 1)
    assert (sizes["experiments_lines"], sizes["docs_words"], sizes["tests_lines"]) == (2, 3, 0)


def test_a_small_module_with_one_importer_is_named(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        {
            "package/__init__.py": "",
            "package/small.py": "one = 1\n",
            "package/shared.py": "two = 2\n",
            "package/first.py": "from package.small import one\nfrom package import shared\n",
            "package/second.py": "import package.shared\n",
        },
    )
    assert single_importer_modules(tmp_path, {path: ast.parse(path.read_text()) for path in files}) == [
        "package.small"
    ]


def test_concepts_of_the_project_are_counted() -> None:
    assert all(count > 0 for count in count_concepts(ROOT).values())
