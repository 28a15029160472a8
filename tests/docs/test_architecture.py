"""docs/architecture.md names every module of the package, and none that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
MODULES = [path for path in (ROOT / "src/ridgerank").rglob("*.py") if path.stem != "__init__"]


def test_every_module_is_named() -> None:
    named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", TEXT)}
    assert sorted(path.name for path in MODULES if path.name not in named) == []


def test_every_module_named_is_there() -> None:
    known = {str(path.relative_to(ROOT / "src/ridgerank")) for path in MODULES}
    for name in re.findall(r"`([\w/]+\.py)`", TEXT):
        assert any(path == name or path.endswith(f"/{name}") for path in known), name
