"""`ridgerank reproduce` runs from a checkout, and says what it needs where only the package is installed."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/ridgerank"
RUN = """
import sys
from pathlib import Path
{prepare}
sys.argv = ["ridgerank", *{arguments!r}]
from ridgerank.cli.main import main
main()
"""
WITHOUT_CHECKOUT = """
sys.path = [entry for entry in sys.path if not (Path(entry or ".") / "experiments").is_dir()]
sys.path.insert(0, {package!r})
"""


def run(tmp_path: Path, *arguments: str, checkout: bool) -> subprocess.CompletedProcess[str]:
    """Type the command in an empty folder, with or without a checkout on the path."""
    prepare = "" if checkout else WITHOUT_CHECKOUT.format(package=str(PACKAGE.parent))
    script = RUN.format(prepare=prepare, arguments=["reproduce", *arguments])
    return subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)


def test_without_a_checkout_it_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, "--out", str(tmp_path / "out"), checkout=False)
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "in the repository, not in the installed package" in line
    assert "pip install -e" in line
    assert not (tmp_path / "build").exists()


def test_help_needs_no_checkout(tmp_path: Path) -> None:
    done = run(tmp_path, "--help", checkout=False)
    assert done.returncode == 0, done.stderr
    assert "--benchmark" in done.stdout


def test_from_a_checkout_the_experiments_are_reached(tmp_path: Path) -> None:
    done = run(tmp_path, "--out", str(tmp_path / "out"), "--benchmark", "nothing", checkout=True)
    assert done.returncode == 1
    assert "no benchmark called 'nothing'" in done.stderr


def test_a_module_that_the_experiments_lack_is_not_taken_for_a_missing_checkout(tmp_path: Path) -> None:
    script = RUN.format(
        prepare="sys.modules['scipy.stats'] = sys.modules['PIL'] = None",
        arguments=["reproduce", "--out", str(tmp_path / "out")],
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "repository" not in done.stderr


def test_the_wheel_holds_the_package_and_nothing_of_the_experiments() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/ridgerank"]}
    folders = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}
    assert not folders & {
        "experiments",
        "reproduce",
        "baselines",
        "datasets",
        "protocols",
        "miniature_training",
    }


def test_the_package_imports_experiments_in_this_command_only_and_when_it_runs() -> None:
    importing = {}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        outside = [node for node in imports if imported_roots(node) & {"experiments", "benchmarks", "tests"}]
        if outside:
            importing[path.relative_to(PACKAGE).as_posix()] = [node for node in outside if node in tree.body]
    assert importing == {"cli/reproduce.py": []}


def test_the_package_trains_nothing() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert "torch.optim" not in text, path
        assert ".backward(" not in text, path


def imported_roots(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.partition(".")[0] for name in names}
