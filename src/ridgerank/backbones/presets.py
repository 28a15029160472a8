"""Rerankers that were trained to read a page first and a query behind it: what to load, and how to ask.

A preset is data: prompt, answers or ranking head, where the weights are, licence. The class of its family
runs it. Importing this module imports no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType

from ridgerank.backbones.prompt import Prompt
from ridgerank.errors import BackboneError
from ridgerank.records import TARGETS, Target


@dataclass(frozen=True, slots=True)
class Preset:
    """A published reranker on the body of a family."""

    repository: str
    """Where it is published: a whole model, or a peft adapter that names its base."""
    family: str
    """The `model_type` of its body."""
    prompt: Prompt
    """As published; its name is the preset's."""
    max_pixels: int
    """Pixel budget of a page, as its authors or first users ran it."""
    licence: str
    notice: str = ""
    """What whoever loads it is told."""
    ranking_head: bool = False
    """Whether its score is that of a head on the last state, not a difference of two answers."""
    architecture: str = ""
    """What its configuration calls its class, where that tells it apart."""

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return self.prompt.name


_PRESETS = (
    Preset(
        repository="lightonai/MonoQwen2-VL-v0.1",
        family="qwen2_vl",
        prompt=Prompt(
            before_page=(
                "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
                "<|im_start|>user\n<|vision_start|>"
            ),
            after_page="<|vision_end|>",
            instruction=(
                "Assert the relevance of the previous image document to the following query, "
                "answer True or False. The query is: "
            ),
            after_query="<|im_end|>\n<|im_start|>assistant\n",
            answers=("True", "False"),
            name="monoqwen2-vl",
        ),
        max_pixels=2048 * 28 * 28,
        licence="Apache-2.0",
    ),
    Preset(
        repository="jinaai/jina-reranker-m0",
        family="qwen2_vl",
        prompt=Prompt(
            before_page="**Document**:\n<|vision_start|>",
            after_page="<|vision_end|>",
            instruction="\n**Query**:\n",
            after_query="",
            answers=None,
            name="jina-reranker-m0",
            closing_tokens=(100,),
        ),
        max_pixels=768 * 28 * 28,
        licence="CC-BY-NC-4.0",
        notice=(
            "jina-reranker-m0 is licensed CC-BY-NC-4.0: not for commercial use without another licence from "
            "its authors, and the same holds for pages stored with it"
        ),
        ranking_head=True,
        architecture="JinaVLForRanking",
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _PRESETS})
"""Every preset by its name."""


def find_preset(
    name: str, family: str, *, prompt: str | None = None, architectures: Sequence[str] = ()
) -> Preset | None:
    """The preset of a model of this family, by the prompt asked for, its name or its class; None without one.

    A folder is recognised where its name begins as the preset's does.
    """
    presets = [preset for preset in PRESETS.values() if preset.family == family]
    if prompt is not None:
        for preset in presets:
            if preset.name == prompt:
                return preset
        known = ", ".join(preset.name for preset in presets) or "none"
        raise BackboneError(
            f"no prompt called {prompt!r} for {name}, a model of type {family!r}; known for it: {known}"
        )
    short_name = PurePath(name).name.lower()
    for preset in presets:
        if short_name.startswith(preset.name) or (
            preset.architecture and preset.architecture in architectures
        ):
            return preset
    return None


def available_targets(prompt_name: str | None) -> tuple[Target, ...]:
    """What a model with this prompt can be asked at full depth: a ranking head leaves no likelihood."""
    preset = PRESETS.get(prompt_name or "")
    return ("margin",) if preset is not None and preset.ranking_head else TARGETS
