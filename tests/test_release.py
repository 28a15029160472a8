"""What a release holds, and that its files agree."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from ridgerank.version import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built by the backend itself: no network, no environment of its own."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"ridgerank", f"ridgerank-{__version__}.dist-info"}
    for wanted in ("py.typed", "cli/main.py", "serving/static/index.html", "integrations/matching.py"):
        assert f"ridgerank/{wanted}" in names
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []
    assert wheel.stat().st_size < 2e6
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert modules <= set(names)


@pytest.mark.slow
def test_the_sdist_holds_what_tests_and_images_need(dist: Path) -> None:
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("README.md", "CITATION.cff", "Makefile", "compose.yaml", "deploy/entrypoint.sh"):
        assert wanted in names
    for folder in ("src/ridgerank", "tests", "docs", "benchmarks", "experiments"):
        assert any(name.startswith(f"{folder}/") for name in names)


def test_the_workflow_tests_every_python_that_is_claimed_on_linux_and_macos() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]["strategy"][
        "matrix"
    ]
    text = (ROOT / "pyproject.toml").read_text()
    claimed = {line.split(" :: ")[-1].strip('", ') for line in text.splitlines() if "Python :: 3." in line}
    assert set(matrix["python"]) == claimed
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos"}
    oldest = {words for each in matrix["include"] for words in each["versions"].split()}
    for name in ("torch", "transformers"):
        least = text.split(f'"{name}>=')[1].split('"')[0]
        assert any(pin.startswith(f"{name}=={least}.") for pin in oldest)


def test_the_citation_names_the_version_and_workflows_call_targets_that_exist() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    targets = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if "##" in line}
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                assert re.fullmatch(r"([\w./-]+@[0-9a-f]{40})?", step.get("uses", ""))
                words = step.get("run", "").split()
                assert words[:1] != ["make"] or words[1] in {*targets, ".venv/.ready"}
