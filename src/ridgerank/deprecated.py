"""Import paths of the first release: each still works, with a warning, for one release."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OLD_PATHS = {
    "ridgerank.reranker": "ridgerank.ranking.reranker",
    "ridgerank.shallow": "ridgerank.ranking.shallow",
    "ridgerank.heat": "ridgerank.ranking.heatmap",
    "ridgerank.store.read": "ridgerank.store.page_store",
}
"""Where README once imported from, and where it is now."""


class _OldPathFinder(MetaPathFinder, Loader):
    """Hands out a module under its old path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in OLD_PATHS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        new_path = OLD_PATHS[module.__name__]
        warnings.warn(
            f"{module.__name__} has moved to {new_path}; the old path goes with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        home = import_module(new_path)
        module.__dict__.update({name: value for name, value in vars(home).items() if name[:2] != "__"})
        if module.__name__ == "ridgerank.heat":
            module.__dict__["draw_heat"] = module.__dict__["draw_heatmap"]


def warn_of_old_paths() -> None:
    """Let the old paths be imported."""
    if not any(isinstance(finder, _OldPathFinder) for finder in sys.meta_path):
        sys.meta_path.append(_OldPathFinder())
