"""The stages joined: whoever asks for a result gets it from disk, or has it computed and kept.

`Lab` knows which model made what, and loads one only where something is missing. Ask model by model (as
`prepare` does) and each is loaded once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Corpus
from experiments.reproduce.settings import Settings
from experiments.reproduce.stages.candidate_pools import Pools, find_pools, queries_digest
from experiments.reproduce.stages.checkpoint import in_parts
from experiments.reproduce.stages.layer_states import run_layers
from experiments.reproduce.stages.loaded_models import Models
from experiments.reproduce.stages.page_vectors import KeptEmbedder, PageVectors, embed_pages, pages_of
from experiments.reproduce.stages.paths import Place, made_with, require_same, slug
from experiments.reproduce.stages.query_states import States, run_deeper, run_states
from experiments.reproduce.stages.stage_progress import Watcher
from experiments.reproduce.stages.store_build import build_store, gather
from ridgerank.atomic import replace_text_file
from ridgerank.ragged import Floats
from ridgerank.store.vector_columns import VectorOrigin

if TYPE_CHECKING:
    from experiments.baselines.base import Arm, Unavailable
    from experiments.baselines.load import Models as ArmModels
    from experiments.baselines.load import Role
    from experiments.reproduce.stages.baseline_scores import ArmScores
    from ridgerank.backbones.base import Backbone
    from ridgerank.calibration.target_cache import TargetCache
    from ridgerank.documents.ocr import Recognizer
    from ridgerank.ranking.shallow import ShallowPass
    from ridgerank.retrievers.base import Retriever
    from ridgerank.retrievers.encoders.base import MultiVectorEncoder
    from ridgerank.store.page_store import PageStore


@dataclass(frozen=True, slots=True)
class Site:
    """A corpus and where it stands: family and place in the family's cycle."""

    family: int
    number: int


class Lab:
    """Everything that is measured in one run, by corpus, retriever and backbone."""

    def __init__(self, settings: Settings, work: Path, watcher: Watcher) -> None:
        self.settings = settings
        self.watcher = watcher
        self.models = Models(settings.device)
        self._arm_models: ArmModels | None = None
        self.work = work
        """Where all stages are kept."""

    def sites(self, family: int | None = None) -> list[Site]:
        """All corpora, or those of one family, in their cyclic order."""
        families = self.settings.families
        return [
            Site(number, place)
            for number, own in enumerate(families)
            if family is None or family == number
            for place in range(len(own.corpora))
        ]

    def corpus(self, site: Site) -> Corpus:
        """The corpus itself."""
        return self.settings.families[site.family].corpora[site.number]

    def place(self, site: Site) -> Place:
        """Its folders."""
        return Place(self.work, self.settings.families[site.family].name, self.corpus(site).name)

    def pools(self, site: Site, retriever: str) -> Pools:
        """The candidates of every query."""
        folder, corpus = self.place(site).retriever(retriever), self.corpus(site)
        self.watcher.start(f"{corpus.name}: candidates by {slug(retriever)}", len(corpus.queries))
        loaded: list[Retriever] = []

        def load() -> "Retriever":
            from ridgerank.calibration.embed_ahead import InMemoryLateInteraction

            if not loaded:
                made, encoder = self.vectors(site, retriever), self._encoder(retriever, folder)
                ends = np.cumsum(made.lengths)[:-1]
                loaded.append(InMemoryLateInteraction(encoder, made.page_ids, np.split(made.vectors, ends)))
                self.watcher.start(f"{corpus.name}: candidates by {slug(retriever)}", len(corpus.queries))
            return loaded[0]

        return find_pools(folder, corpus, load, depth=self.settings.deepest, done=self.watcher.advance)

    def references(self, site: Site) -> dict[str, str]:
        """Page id → the name judgements know it by."""
        return {ref.page_id: ref.reference for ref in pages_of(self.corpus(site))}

    def vectors(self, site: Site, retriever: str) -> PageVectors:
        """The pages, embedded."""
        folder, corpus = self.place(site).retriever(retriever), self.corpus(site)
        refs = pages_of(corpus)
        self.watcher.start(f"{corpus.name}: pages embedded by {slug(retriever)}", len(refs))
        return embed_pages(
            folder,
            refs,
            lambda: self._encoder(retriever, folder),
            max_pixels=self._max_pixels,
            done=self.watcher.advance,
            say=self.watcher.say,
        )

    def margins(self, site: Site, backbone: str, retriever: str) -> Floats:
        """(queries, candidates): t, the full-depth margin."""
        folder, corpus = self.place(site).backbone(backbone), self.corpus(site)
        kept = in_parts(
            folder / f"margins-{slug(retriever)}" / self._pool_name(corpus),
            1,
            1,
            lambda _: {"margins": self._take_margins(site, backbone, retriever)[None]},
        )
        return np.asarray(kept["margins"][0])

    def states(self, site: Site, backbone: str, retriever: str) -> States:
        """The states at the exit layer, and the time it takes to make them."""
        folder, corpus = self.place(site).backbone(backbone), self.corpus(site)
        pools = self.pools(site, retriever)
        timed = (backbone, retriever) == (self.settings.backbones[0], self.settings.retrievers[0])
        with self._shallow(site, backbone) as shallow:
            self.watcher.start(
                f"{corpus.name}: {slug(backbone)} behind {slug(retriever)}", len(corpus.queries)
            )
            return run_states(
                folder / f"states-{slug(retriever)}",
                corpus,
                pools,
                shallow.open,
                candidates=self.settings.candidates,
                full_pass_every=self.settings.full_pass_every if timed else None,
                done=self.watcher.advance,
            )

    def deeper(self, site: Site, backbone: str, retriever: str) -> NDArray[np.float32]:
        """(queries, pages, dim): states of the candidates below those of `states`."""
        folder, corpus = self.place(site).backbone(backbone), self.corpus(site)
        pools = self.pools(site, retriever)
        with self._shallow(site, backbone) as shallow:
            self.watcher.start(
                f"{corpus.name}: {slug(backbone)} behind {slug(retriever)}, deeper", len(corpus.queries)
            )
            return run_deeper(
                folder / f"deeper-{slug(retriever)}",
                corpus,
                pools,
                shallow.open,
                depths=(self.settings.candidates, self.settings.deepest),
                done=self.watcher.advance,
            )

    def layers(self, site: Site, backbone: str, queries: Sequence[int]) -> NDArray[np.float32]:
        """(queries, candidates, layers, dim): states of some queries at every layer, first retriever."""
        folder, corpus = self.place(site).backbone(backbone), self.corpus(site)
        pools = self.pools(site, self.settings.retrievers[0])
        page_ids = pools.page_ids[list(queries), : self.settings.candidates]
        self.watcher.start(f"{corpus.name}: {slug(backbone)} at every layer", len(np.unique(page_ids)))
        self._require_store(site, backbone)
        return run_layers(
            folder / "layers",
            self.place(site).store(backbone),
            [corpus.queries[number].text for number in queries],
            page_ids,
            lambda: self._backbone(backbone, folder),
            self.settings.keep,
            done=self.watcher.advance,
        )

    def arm(
        self, site: Site, retriever: str, role: "Role", *, candidates: int | None = None
    ) -> "ArmScores | Unavailable":
        """The scores of another arm, or why there are none."""
        from experiments.baselines.load import STAND_IN_BACKBONE
        from experiments.reproduce.stages.baseline_scores import run_arm

        corpus, settings = self.corpus(site), self.settings
        first = settings.backbones[0]
        # The stand-in's margins are taken for its own readout anyway, where it is among the backbones.
        shared = STAND_IN_BACKBONE if STAND_IN_BACKBONE in settings.backbones else None
        pools = self.pools(site, retriever)
        self.watcher.start(f"{corpus.name}: {role} behind {slug(retriever)}", len(corpus.queries))
        opened: list[PageStore] = []

        def load(work: Path) -> "Arm | Unavailable":
            from experiments.baselines.load import Models as ArmModels
            from experiments.baselines.load import load_arms
            from ridgerank.store.page_store import PageStore

            if not opened:
                self._require_store(site, first)
                opened.append(PageStore.open(self.place(site).store(first)))
            if self._arm_models is None:
                self._arm_models = ArmModels(settings.arms, device=settings.device)
            return load_arms(self._arm_models, opened[0], work=work, roles=(role,))[role]

        try:
            return run_arm(
                self.place(site).folder / f"arm-{slug(role)}-{slug(retriever)}",
                corpus,
                pools,
                load,
                self.place(site).backbone(shared) if shared else self.place(site).folder / "arms",
                candidates=candidates or settings.candidates,
                full_pass_every=settings.full_pass_every if retriever == settings.retrievers[0] else None,
                done=self.watcher.advance,
            )
        finally:
            for store in opened:
                store.close()

    def release(self) -> None:
        """Let all models go: the next ones may need their room."""
        self.models = Models(self.settings.device)
        self._arm_models = None

    def _take_margins(self, site: Site, backbone: str, retriever: str) -> Floats:
        self._require_store(site, backbone)
        corpus = self.corpus(site)
        cache = self._margin_cache(site, backbone)
        return gather(corpus, self.pools(site, retriever), cache, candidates=self.settings.candidates)

    def _require_store(self, site: Site, backbone: str) -> None:
        """Index the corpus and take all margins, unless that has been done for these pools."""
        folder, corpus = self.place(site).backbone(backbone), self.corpus(site)
        names = [slug(name) for name in self.settings.retrievers]
        marker = folder / f"taught-{self._pool_name(corpus)}-{'-'.join(names)}"
        if marker.exists():
            return
        pools = [self.pools(site, name) for name in self.settings.retrievers]
        model = self._backbone(backbone, folder)
        embedder = recognizer = None
        if backbone == self.settings.backbones[0]:
            # The store the other arms read: it has the first retriever's vectors, and text.
            recognizer = self._recognizer if self.settings.ocr else None
            first = self.settings.retrievers[0]
            made = self.place(site).retriever(first)
            origin = VectorOrigin.from_json(made_with(made))
            embedder = KeptEmbedder(origin, lambda: self._encoder(first, made), self.vectors(site, first))
        build_store(
            self.place(site).store(backbone),
            corpus,
            model,
            self._margin_cache(site, backbone),
            pools,
            candidates=self.settings.candidates,
            exit_layer=self._exit_layer(model),
            keep=self.settings.keep,
            embedder=embedder,
            recognizer=recognizer,
            watcher=self.watcher,
        )
        with replace_text_file(marker):
            pass

    @cached_property
    def _recognizer(self) -> "Recognizer":
        from ridgerank.documents.ocr import Recognizer

        return Recognizer(cache=self.work / "ocr")

    def _pool_name(self, corpus: Corpus) -> str:
        return f"{queries_digest(corpus)}-{self.settings.candidates}"

    def _margin_cache(self, site: Site, backbone: str) -> "TargetCache":
        from ridgerank.calibration.target_cache import TargetCache
        from ridgerank.store.model_lineage import make_lineage

        folder = self.place(site).backbone(backbone)
        model = self._backbone(backbone, folder)
        lineage = make_lineage(
            model, exit_layer=self._exit_layer(model), join_layer=0, keep=self.settings.keep
        )
        return TargetCache(folder, lineage)

    @contextmanager
    def _shallow(self, site: Site, backbone: str) -> "Iterator[_Opener]":
        opener = _Opener(self, site, backbone)
        try:
            yield opener
        finally:
            opener.close()

    def open_shallow(self, site: Site, backbone: str) -> "ShallowPass":
        """The model over its store; pages are read at every request, as on a machine with many of them."""
        from ridgerank.ranking.shallow import ShallowPass
        from ridgerank.store.page_store import PageStore

        self._require_store(site, backbone)
        model = self._backbone(backbone, self.place(site).backbone(backbone))
        return ShallowPass(model, PageStore.open(self.place(site).store(backbone)), cache_bytes=0)

    def _backbone(self, name: str, folder: Path) -> "Backbone":
        from ridgerank.lineage import Lineage
        from ridgerank.store.model_lineage import make_lineage

        model = self.models.backbone(name)
        layer = self._exit_layer(model)
        made = make_lineage(model, exit_layer=layer, join_layer=0, keep=self.settings.keep)
        require_same(folder, made.to_json(), normalize=lambda noted: Lineage.from_json(noted).to_json())
        return model

    def _encoder(self, name: str, folder: Path) -> "MultiVectorEncoder":
        encoder = self.models.encoder(name)
        require_same(folder, encoder.origin.to_json())
        return encoder

    def _exit_layer(self, model: "Backbone") -> int:
        from ridgerank.store.model_lineage import default_exit_layer

        given = self.settings.exit_layer
        return default_exit_layer(model.geometry.layers) if given is None else given

    @cached_property
    def _max_pixels(self) -> int:
        """How large pages are seen by retrievers: as the first backbone sees them."""
        path = self.work / f"pixels-{slug(self.settings.backbones[0])}"
        if not path.exists():
            with replace_text_file(path) as file:
                file.write(str(self.models.backbone(self.settings.backbones[0]).max_pixels))
        return int(path.read_text())


class _Opener:
    """Opens a store when the first query runs over it, and closes it if it was opened."""

    def __init__(self, lab: Lab, site: Site, backbone: str) -> None:
        self._lab, self._site, self._backbone = lab, site, backbone
        self._opened: ShallowPass | None = None

    def open(self) -> "ShallowPass":
        """The pass, the same one every time."""
        if self._opened is None:
            self._opened = self._lab.open_shallow(self._site, self._backbone)
        return self._opened

    def close(self) -> None:
        """Close the store."""
        if self._opened is not None:
            self._opened.store.close()
