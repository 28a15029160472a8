"""Check the size of the project against the budget in pyproject.toml.

    python -m benchmarks.budget               # lines, files and words, exits with 1 if one exceeds its budget
    python -m benchmarks.budget --concepts    # also counts records, commands, options and small modules

Only files that git tracks are counted. Without git, every file in the folders is.
"""

import argparse
import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "experiments", "miniature", "docs")
SMALL_MODULE = 150
"""A module with fewer lines and a single importer belongs into its importer."""


def main() -> None:
    """Print the table, and what is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--concepts", action="store_true")
    arguments = parser.parse_args()
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ridgerank"]["budget"]
    sizes = measure_sizes(ROOT, tracked_files(ROOT), budget)
    print_rows([("name", "now", "budget"), *((name, sizes[name], budget[name]) for name in sizes)])
    if arguments.concepts:
        print()
        print_rows([("concept", "now", ""), *((name, now, "") for name, now in count_concepts(ROOT).items())])
    exceeded = [
        f"{name} is {now}, more than the budget of {budget[name]} in pyproject.toml; remove something"
        for name, now in sizes.items()
        if now > budget[name]
    ]
    sys.exit("\n".join(exceeded) or 0)


def print_rows(rows: Iterable[tuple[str, object, object]]) -> None:
    """Print an aligned table of three columns."""
    for name, now, budget in rows:
        print(f"{name:<38}{now!s:>8}{budget!s:>9}")


def tracked_files(root: Path) -> list[Path]:
    """The files that git tracks; without git, every file of the project's folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
        )
        files = [root / name for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [*root.glob("*.md"), *(path for folder in FOLDERS for path in (root / folder).rglob("*"))]
    return [path for path in files if path.is_file() and "__pycache__" not in path.parts]


def measure_sizes(root: Path, files: Iterable[Path], names: Iterable[str]) -> dict[str, int]:
    """Size now of each name in the budget."""
    sizes = Counter[str]()
    for path in files:
        relative = path.relative_to(root)
        folder = relative.parts[0]
        if path.suffix == ".py":
            group = "experiments" if folder == "miniature" else folder
            sizes[f"{group}_lines"] += count_lines(path)
            sizes["src_modules"] += folder == "src"
            sizes["benchmarks_files"] += folder == "benchmarks"
        elif folder == "src" and path.suffix in {".js", ".css", ".html"}:
            sizes["page_lines"] += count_lines(path)
        elif path.suffix == ".md" and folder != "results" and relative.name != "CHANGELOG.md":
            sizes["docs_words"] += len(path.read_text(encoding="utf-8").split())
    return {name: sizes[name] for name in names}


def count_lines(path: Path) -> int:
    """Lines of a text file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def count_concepts(root: Path) -> dict[str, int]:
    """What a reader has to know, counted in the sources and the command line."""
    from typer.main import get_command

    from ridgerank.cli.main import app

    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (root / "src").rglob("*.py")}
    classes = [node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    command = get_command(app)
    options = list_options(command)
    return {
        "dataclasses": sum(any(map(is_dataclass_decorator, node.decorator_list)) for node in classes),
        "commands in --help": len(getattr(command, "commands", {})),
        "options, counted per command": len(options),
        "options, distinct declarations": len(set(options)),
        "records that hold storage settings": sum(map(holds_storage_settings, classes)),
        f"modules < {SMALL_MODULE} lines, one importer": len(single_importer_modules(root / "src", modules)),
    }


def is_dataclass_decorator(decorator: ast.expr) -> bool:
    """Whether it is `@dataclass` or `@dataclass(...)`."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(target, ast.Name) and target.id == "dataclass"


def holds_storage_settings(node: ast.ClassDef) -> bool:
    """Whether the class has a field for the kept positions and one for the quality of numbers."""
    names = {
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    return "keep" in names and any(name == "quality" for name in names)


def list_options(command: object) -> list[tuple[str, str]]:
    """Name and help of each option of a click command and of its subcommands, --help apart."""
    options = [option for option in getattr(command, "params", []) if option.param_type_name == "option"]
    own = [(option.name, option.help) for option in options if option.name != "help"]
    return own + [pair for sub in getattr(command, "commands", {}).values() for pair in list_options(sub)]


def single_importer_modules(source: Path, modules: dict[Path, ast.Module]) -> list[str]:
    """Small modules that one other module imports, `cli/` and `__init__` apart."""
    names = {path: ".".join(path.relative_to(source).with_suffix("").parts) for path in modules}
    importers = Counter[str]()
    for tree in modules.values():
        importers.update(imported_names(tree))
    return sorted(
        name
        for path, name in names.items()
        if path.stem != "__init__" and "cli" not in path.relative_to(source).parts
        if importers[name] == 1 and count_lines(path) < SMALL_MODULE
    )


def imported_names(tree: ast.Module) -> set[str]:
    """Everything a module names in its imports, with the modules that they come from."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


if __name__ == "__main__":
    main()
