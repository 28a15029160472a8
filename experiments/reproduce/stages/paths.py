"""Where results are in the work folder, and which model computed them."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from ridgerank.atomic import replace_text_file
from ridgerank.errors import LineageMismatch
from ridgerank.lineage import Lineage, list_differences
from ridgerank.store.vector_columns import VectorOrigin

_LINEAGE = "lineage.json"


@dataclass(frozen=True, slots=True)
class CorpusPaths:
    """The folders of one corpus."""

    work: Path
    family: str
    corpus: str

    @property
    def folder(self) -> Path:
        """The corpus."""
        return self.work / slug(self.family) / slug(self.corpus)

    def retriever(self, name: str) -> Path:
        """The results of a retriever."""
        return self.folder / f"retriever-{slug(name)}"

    def backbone(self, name: str) -> Path:
        """The results of a backbone."""
        return self.folder / f"backbone-{slug(name)}"

    def store(self, backbone: str) -> str:
        """The page store."""
        return str(self.backbone(backbone) / "store")


def slug(name: str) -> str:
    """A name as a folder: the last part of a path or repository, in letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].casefold()).strip("-")


def read_folder_lineage(folder: Path) -> str:
    """What computed the contents of a folder, as `require_lineage` wrote it."""
    return (folder / _LINEAGE).read_text()


def require_lineage(folder: Path, at_hand: Lineage | VectorOrigin) -> None:
    """Write what computes the contents of a folder; refuse a folder that something else computed.

    The same model may have been loaded from another place.
    """
    path = folder / _LINEAGE
    if not path.exists():
        with replace_text_file(path) as file:
            file.write(at_hand.to_json())
        return
    recorded = type(at_hand).from_json(path.read_text())
    place = "backbone" if isinstance(at_hand, Lineage) else "source"
    if list_differences(asdict(recorded), asdict(at_hand), ignored=(place,)):
        raise LineageMismatch(
            f"{folder} was made with {recorded.to_json()}, at hand is {at_hand.to_json()}; "
            "use another --work folder, or remove it"
        )
