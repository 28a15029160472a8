"""The package as a whole: its front door, what it needs to start, what is said without the extras."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ridgerank
from experiments.simulation import World, simulate
from ridgerank.errors import ExtraMissing
from ridgerank.extras import PACKAGES, name_missing_extra, require_packages

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/ridgerank"
IMPORTS = ast.Import | ast.ImportFrom
LIGHT = [
    "ridgerank",
    "ridgerank.cli.main",
    "ridgerank.fusion.weight",
    "ridgerank.fusion.runs",
    "ridgerank.readout",
    "ridgerank.documents.render",
    "ridgerank.evaluation.metrics",
]
HEAVY = {"torch", "transformers", "lance", "pyarrow", "PIL", "pypdfium2", "fastapi", "ray", "matplotlib"}


def run_python(code: str, *, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=cwd)
    return done.stdout


def test_the_front_door_shows_what_it_has() -> None:
    assert dir(ridgerank) == ridgerank.__all__
    for name in ridgerank.__all__:
        assert getattr(ridgerank, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Rerank'; it has PageFilter"):
        _ = ridgerank.Rerank


def test_light_parts_import_nothing_heavy() -> None:
    """Help imports nothing heavy either: it is shown by `cli.main`."""
    code = (
        f"import sys, {', '.join(LIGHT)}\nfrom ridgerank.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    assert run_python(code).strip().endswith("heavy: []")


def test_a_system_without_the_calls_that_only_linux_has_indexes_and_reads(tmp_path: Path) -> None:
    """As on macOS, and without `fcntl`, too: nothing is locked then, and a warning says so."""
    script = """
import os, sys
del os.sched_getaffinity, os.RWF_NOWAIT
sys.modules["fcntl"] = None
from ridgerank.processes import usable_cores
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, row
with StoreWriter(sys.argv[1], LINEAGE) as writer:
    writer.append([row(number) for number in range(3)])
with PageStore.open(sys.argv[1]) as store:
    print(len(store.read_prefixes(store.page_ids())), usable_cores() > 0)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["3", "True"]
    assert "files cannot be locked here" in done.stderr


def test_windows_is_refused_in_a_sentence() -> None:
    script = """
import sys
sys.platform = "win32"
try:
    import ridgerank
except ImportError as error:
    print(error)
"""
    assert "not on Windows" in run_python(script)


BLOCK = f"""
import sys
for package in {list(PACKAGES)!r}:
    sys.modules[package] = None
"""
NEED_EXTRAS = {
    "index": ["docs", "--store", "s"],
    "calibrate": ["--store", "s"],
    "search": ["--store", "s", "some words"],
    "rank": ["--store", "s", "--queries", "q.jsonl", "--run", "w/retriever.trec"],
    "serve": ["--store", "s"],
    "trial": ["docs", "--store", "s"],
    "store info": ["s"],
    "store check": ["s"],
}


def run_blocked(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + code], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_command_names_the_extra_it_needs(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.pdf").write_bytes(b"%PDF-1.4")
    lines = [json.dumps({"query_id": f"q{number}", "text": "words"}) for number in range(1, 5)]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    simulate(World(), queries=4, seed=0).write(tmp_path / "w")
    code = f"""
import contextlib, io, json
from ridgerank.cli.main import main
said = {{}}
def run(words):
    errors = io.StringIO()
    sys.argv = ["ridgerank", *words]
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit:
            pass
    return errors.getvalue()
for name, words in {NEED_EXTRAS!r}.items():
    said[name] = run([*name.split(), *words])
print(json.dumps(said))
"""
    for name, text in json.loads(run_blocked(code, tmp_path)).items():
        assert "pip install" in text, (name, text)
        assert text.count("\n") == 1, (name, text)


def test_every_module_imports_or_names_an_extra(tmp_path: Path) -> None:
    code = """
import importlib, pkgutil, warnings
import ridgerank
from experiments.simulation import World, simulate
from ridgerank.errors import ExtraMissing
warnings.simplefilter("ignore")
names = [module.name for module in pkgutil.walk_packages(ridgerank.__path__, "ridgerank.", onerror=print)]
missing = 0
for name in names:
    try:
        importlib.import_module(name)
    except ExtraMissing as error:
        missing += 1
        assert "pip install" in str(error), (name, str(error))
for name in ridgerank.__all__:
    try:
        getattr(ridgerank, name)
    except ExtraMissing:
        pass
print(missing)
"""
    assert int(run_blocked(code, tmp_path)) > 50


def test_every_package_that_is_imported_is_a_dependency_or_of_an_extra() -> None:
    """What the packages of extras bring along is missing with them: `tokenizers` with transformers."""
    root = Path(ridgerank.__file__).parent
    core = {"numpy", "scipy", "safetensors", "ir_measures", "typer", "rich"}
    with_others = {"pydantic", "starlette", "anyio", "opentelemetry"}
    imported = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    own = {"ridgerank", "_typeshed"} | sys.stdlib_module_names
    assert imported - own - core - with_others - set(PACKAGES) == set()


def test_missing_extras_are_named_together_and_another_package_stays_the_error_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ridgerank.extras.find_spec", lambda package: None)
    with pytest.raises(
        ExtraMissing, match=r"torch, uvicorn are not installed: .*'ridgerank\[engine,serve\]'"
    ):
        require_packages("torch", "uvicorn")
    error = ModuleNotFoundError("No module named 'antigravity'", name="antigravity")
    assert name_missing_extra(error) is error
