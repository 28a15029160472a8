"""Models loaded when first needed, one backbone and one encoder at a time: large ones may not all fit."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import require_lineage, slug
from miniature import model_path
from ridgerank.atomic import replace_text_file

if TYPE_CHECKING:
    from experiments.baselines.load import BaselineModels
    from ridgerank.backbones.base import Backbone
    from ridgerank.calibration.teacher import TargetCache
    from ridgerank.documents.ocr import Recognizer
    from ridgerank.lineage import Lineage
    from ridgerank.retrievers.encoders import MultiVectorEncoder


class ModelCache:
    """The backbone and the encoder that were used last, and what of them is noted in the work folder."""

    def __init__(self, settings: ExperimentSettings, work: Path) -> None:
        self._settings = settings
        self._work = work
        self._backbone: tuple[str, Backbone] | None = None
        self._encoder: tuple[str, MultiVectorEncoder] | None = None
        self._baselines: BaselineModels | None = None

    def load_backbone(self, name: str) -> "Backbone":
        """Load a backbone; the one before is released."""
        from ridgerank.backbones.load import load_backbone

        if self._backbone is None or self._backbone[0] != name:
            self._backbone = None
            self._backbone = name, load_backbone(model_path(name), device=self._settings.device)
        return self._backbone[1]

    def load_encoder(self, name: str) -> "MultiVectorEncoder":
        """Load a late interaction model; the one before is released."""
        from ridgerank.retrievers.encoders import load_encoder

        if self._encoder is None or self._encoder[0] != name:
            self._encoder = None
            self._encoder = name, load_encoder(model_path(name), device=self._settings.device)
        return self._encoder[1]

    @property
    def baselines(self) -> "BaselineModels":
        """The models of the baselines."""
        from experiments.baselines.load import BaselineModels

        if self._baselines is None:
            self._baselines = BaselineModels(self._settings.baselines, device=self._settings.device)
        return self._baselines

    def release(self) -> None:
        """Release all models: the next ones may need their memory."""
        self._backbone = self._encoder = self._baselines = None

    def backbone_for(self, folder: Path, name: str) -> "Backbone":
        """A backbone whose results are kept in `folder`; results of another model there are refused."""
        model = self.load_backbone(name)
        require_lineage(folder, self._lineage(model))
        return model

    def encoder_for(self, folder: Path, name: str) -> "MultiVectorEncoder":
        """An encoder whose results are kept in `folder`; results of another model there are refused."""
        encoder = self.load_encoder(name)
        require_lineage(folder, encoder.origin)
        return encoder

    def margin_cache(self, folder: Path, backbone: str) -> "TargetCache":
        """The full-depth margins of a backbone that are kept in `folder`."""
        from ridgerank.calibration.teacher import TargetCache

        model = self.backbone_for(folder, backbone)
        return TargetCache(folder, self._lineage(model))

    def _lineage(self, model: "Backbone") -> "Lineage":
        from ridgerank.lineage import StorageSetting, default_exit_layer

        return model.lineage(StorageSetting(self._settings.keep, default_exit_layer(model.geometry.layers)))

    @cached_property
    def max_pixels(self) -> int:
        """How large retrievers see pages: as the first backbone sees them."""
        path = self._work / f"pixels-{slug(self._settings.backbones[0])}"
        if not path.exists():
            with replace_text_file(path) as file:
                file.write(str(self.load_backbone(self._settings.backbones[0]).max_pixels))
        return int(path.read_text())

    @cached_property
    def recognizer(self) -> "Recognizer":
        """Optical character recognition whose results are kept in the work folder."""
        from ridgerank.documents.ocr import Recognizer

        return Recognizer(cache=self._work / "ocr")
