"""A readout as a file of its own (`*.ridge`): fitted once, taken to other stores of the same model.

It is a safetensors file with what a calibration's file has, but for the lists, and a probe: a few queries and
pages, as text or PNG, with their scores. No name decides whether a readout is one for the model at hand, its
probe is run through that model (`store/probe.py`). Its pages are not compressed: every store has a basis of
its own, and the errors of two of them would hide whether the models differ.
"""

import io
import json
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Self

import numpy as np
from PIL import Image, ImageDraw

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.backbones.model_settings import find_model
from ridgerank.calibration.artifact import Calibration, read_sealed, write_sealed
from ridgerank.calibration.weight import equal_weight
from ridgerank.documents.render import page_from_image, page_from_text
from ridgerank.errors import ArtifactError
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats
from ridgerank.store.probe import ProbeResult, center_scores, compare_scores

FORMAT = "ridgerank-readout-1"
SUFFIX = ".ridge"
HUB_FILE = f"readout{SUFFIX}"
_ABOUT = "about"
_PAGE_SIDE = 336

_TOPICS = (
    "The ferry leaves the northern harbour at six and at nine, and returns before the last train of the day.",
    "Dissolve the salt in warm water, add the flour, and let the dough rest under a cloth for one hour.",
    "The function returns a list of names. It raises an error if the path given does not exist.",
    "Revenue rose by twelve percent to 48 million, while costs of materials fell in the second quarter.",
    "This agreement ends thirty days after written notice by either party, unless it is renewed before.",
    "Hold the button for three seconds until the lamp blinks, then release it to reset the heater.",
    "The survey counted 214 nests along the river, fewer than in any spring since records began.",
    "A vector is normalized by dividing it by its length, so that only its direction is compared.",
)
_QUERIES = ("how to reset the device", "by how much did sales grow")


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """What is asked of a model, and the scores that a readout gave."""

    pages: tuple[str | bytes, ...]
    queries: tuple[str, ...]
    scores: Floats
    """(queries, pages), centred per list."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadoutFile:
    """A readout and what is known of it."""

    calibration: Calibration
    """The one it was fitted by, without its lists: readout, target, state, held-out r."""
    probe: Probe
    fitted_on: tuple[str, ...]
    licence: str
    source: str

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        backbone: Backbone,
        *,
        fitted_on: tuple[str, ...] = (),
        licence: str = "",
    ) -> Self:
        """The readout of a calibration, with a probe that is run here. No path of this machine is kept."""
        name, readout = backbone.name, calibration.readout
        source = find_model(name)[1] or (PurePath(name).name if Path(name).exists() else name)
        bare = replace(
            calibration,
            readout=replace(readout, lineage=replace(readout.lineage, backbone=source)),
            weight=equal_weight(),
            retriever="",
            retriever_identity="",
            retriever_source="",
            diagnostics=replace(calibration.diagnostics, queries_from="", reason="that of the readout"),
            lists=None,
        )
        pages = tuple(text if backbone.reads_text else draw_text(text) for text in _TOPICS)
        probe = Probe(pages, _QUERIES, np.zeros((len(_QUERIES), len(pages))))
        scores = center_scores(score_probe(backbone, probe, bare))
        return cls(bare, replace(probe, scores=scores), fitted_on, licence, source)

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        tensors, metadata = self.calibration.content()
        images = [page for page in self.probe.pages if isinstance(page, bytes)]
        tensors |= {f"page_{number}": np.frombuffer(page, np.uint8) for number, page in enumerate(images)}
        about = {name: getattr(self, name) for name in ("fitted_on", "licence", "source")}
        about |= {"queries": self.probe.queries, "pages": len(images) or self.probe.pages}
        metadata |= {"format": FORMAT, _ABOUT: json.dumps(about, ensure_ascii=False)}
        write_sealed(path, {**tensors, "probe_scores": self.probe.scores}, metadata)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file; one that is damaged or of another format is refused."""
        names = {"format", "lineage", "fit", "facts", "digest", _ABOUT}
        metadata, tensors = read_sealed(path, FORMAT, names)
        try:
            about = json.loads(metadata[_ABOUT])
            pages, scores = about["pages"], np.asarray(tensors["probe_scores"], np.float64)
            if isinstance(pages, int):
                pages = [tensors[f"page_{number}"].tobytes() for number in range(pages)]
            if scores.shape != (len(about["queries"]), len(pages)) or not np.isfinite(scores).all():
                raise ValueError(f"a probe of shape {scores.shape}")
            return cls(
                Calibration.parse(metadata, tensors, None, path.stem),
                Probe(tuple(pages), tuple(about["queries"]), scores),
                tuple(about["fitted_on"]),
                about["licence"],
                about["source"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ArtifactError(f"{path} is damaged ({error}); make the readout again") from error

    def differences(self, lineage: Lineage, width: int) -> str:
        """Why it cannot be for pages of this lineage and states, empty if the probe has to tell."""
        own = self.calibration.readout.lineage
        compared = {
            "model type": (own.family, lineage.family),
            "prompt": (own.prompt_name, lineage.prompt_name),
            "storage": tuple(str(replace(each.storage, basis=None)) for each in (own, lineage)),
            "width": (len(self.calibration.readout.vector), width),
        }
        return "; ".join(
            f"{name}: {there} there, {here} here" for name, (there, here) in compared.items() if there != here
        )

    def check(self, backbone: Backbone, lineage: Lineage) -> ProbeResult:
        """Run the probe through this model; a readout for other pages than of this lineage is refused."""
        if differences := self.differences(lineage, backbone.geometry.width):
            raise ArtifactError(
                f"the readout is for another model or store ({differences}); calibrate, or use one for "
                f"{backbone.name}"
            )
        return compare_scores(self.probe.scores, score_probe(backbone, self.probe, self.calibration))

    def require(self, backbone: Backbone, lineage: Lineage) -> None:
        """Refuse a readout that is not one for this model and pages of this lineage."""
        result = self.check(backbone, lineage)
        if not result.accepted:
            raise ArtifactError(
                f"the readout was not made with {backbone.name} as it is here: {result}; calibrate instead"
            )

    def over(self, lineage: Lineage, queries_from: str, incumbent: float) -> Calibration:
        """The readout over other pages, at the weight of which nothing was measured."""
        return replace(
            self.calibration,
            readout=replace(self.calibration.readout, lineage=lineage),
            weight=equal_weight(incumbent),
            diagnostics=replace(self.calibration.diagnostics, queries_from=queries_from, incumbent=incumbent),
        )


def score_probe(backbone: Backbone, probe: Probe, calibration: Calibration) -> Floats:
    """(queries, pages): the scores of the probe's pages by this model."""
    readout = calibration.readout
    contents = [
        page_from_text(page, "probe")
        if isinstance(page, str)
        else page_from_image(
            Image.open(io.BytesIO(page)).convert("RGB"), "probe", max_pixels=backbone.page_budget
        )
        for page in probe.pages
    ]
    prefixes = backbone.encode(
        [backbone.content(page) for page in contents], exit_layer=readout.lineage.storage.exit_layer
    )
    pages = PrefixBatch(prefixes)
    states = [backbone.states([query], pages, state=calibration.state) for query in probe.queries]
    return np.stack([readout.score(each.cpu().numpy().astype(np.float64)) for each in states])


def draw_text(text: str) -> bytes:
    """A page with a few lines of text, as PNG."""
    image = Image.new("RGB", (_PAGE_SIDE, _PAGE_SIDE), "white")
    words = text.split()
    lines = [" ".join(words[start : start + 4]) for start in range(0, len(words), 4)]
    ImageDraw.Draw(image).multiline_text((24, 24), "\n".join(lines), fill="black", spacing=12)
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return content.getvalue()


def find_readout(name: str) -> Path:
    """The file of a readout: a path, the name of one that is shipped, or `owner/name` on the hub."""
    path, shipped = Path(name), shipped_readouts()
    if path.is_file() or name in shipped:
        return path if path.is_file() else shipped[name]
    if path.suffix == SUFFIX or name.count("/") != 1:
        known = ", ".join(shipped) or "none"
        raise ArtifactError(
            f"no readout {name!r}; expected a file, owner/name on the hub, or one that is shipped: {known}"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(hf_hub_download(name, HUB_FILE))
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ArtifactError(
            f"cannot get {HUB_FILE} of {name} from the hub: {str(error).strip().splitlines()[0]} Check the "
            "name and the connection, or download it once and give the file"
        ) from error


def shipped_readouts() -> dict[str, Path]:
    """The readouts that come with this package, by name."""
    folder = Path(str(files("ridgerank") / "readouts"))
    return {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def shipped_for(lineage: Lineage, width: int) -> tuple[str, ReadoutFile] | None:
    """The shipped readout that may be one for this model, by its shape; its probe has to tell."""
    for name, path in shipped_readouts().items():
        if not (file := ReadoutFile.load(path)).differences(lineage, width):
            return name, file
    return None
