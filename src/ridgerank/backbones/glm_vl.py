"""GLM-4.1V and GLM-4.6V."""

from dataclasses import replace

import torch
from torch import Tensor
from transformers import BaseImageProcessor, Glm4vForConditionalGeneration, Glm46VForConditionalGeneration
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.glm4v.modeling_glm4v import rotate_half_llm
from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

from ridgerank.backbones.decoder import Affine, Decoder, llama_block
from ridgerank.backbones.prompt import INSTRUCTION, Prompt
from ridgerank.backbones.vision import GridBackbone
from ridgerank.errors import BackboneError


class Glm41V(GridBackbone):
    """GLM-4.1V-9B-Thinking, its thinking closed before it starts so that the next token is the answer."""

    prompt = Prompt(
        before_page="[gMASK]<sop><|user|>\n<|begin_of_image|>",
        after_page="<|end_of_image|>",
        instruction=INSTRUCTION,
        after_query="<|assistant|>\n<think></think><answer>",
        answers=("yes", "no"),
    )
    model_class = Glm4vForConditionalGeneration
    image_processor_class = Glm4vImageProcessorPil
    default_max_pixels = 1280 * 28 * 28
    image_token = "<|image|>"
    rotated_share = 0.5

    @classmethod
    def pixel_budget(cls, image_processor: BaseImageProcessor) -> int:
        """The pixel budget of one frame; the processor counts a still image as two."""
        frames = image_processor.temporal_patch_size
        return int(image_processor.size["longest_edge"]) // int(frames)

    @classmethod
    def limit_pixels(cls, image_processor: BaseImageProcessor, max_pixels: int) -> None:
        """Set the pixel budget of one frame."""
        frames = image_processor.temporal_patch_size
        image_processor.size = image_processor.size | {"longest_edge": max_pixels * frames}

    def _build_decoder(self) -> Decoder:
        text = self._text_model()
        blocks = []
        for layer in text.layers:
            gate, up = map(Affine, layer.mlp.gate_up_proj.weight.chunk(2))
            block = llama_block(layer, gate, up)
            output_norm, down_norm = layer.post_self_attn_layernorm, layer.post_mlp_layernorm
            blocks.append(replace(block, output_norm=output_norm, down_norm=down_norm))
        return Decoder(blocks, self.geometry, rotary=text.rotary_emb, rotate=_rotate)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn neighbouring pairs of the first channels of each head; the rest carry no position."""
    turned, still = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    turned = turned * cos + rotate_half_llm(turned) * sin
    return torch.cat([turned, still.expand(*turned.shape[:-1], -1)], dim=-1)


class Glm46V(Glm41V):
    """GLM-4.6V-Flash, its thinking closed before it starts; the larger GLM-4.6V mixes experts."""

    prompt = replace(Glm41V.prompt, after_query="<|assistant|>\n<think></think>\n")
    model_class = Glm46VForConditionalGeneration
    image_processor_class = Glm46VImageProcessorPil

    def _build_decoder(self) -> Decoder:
        kind = self._text_model().config.model_type
        if kind != "glm4v_text":
            raise BackboneError(
                f"{self.name} has a {kind!r} decoder; only 'glm4v_text' is supported, as in GLM-4.6V-Flash"
            )
        return super()._build_decoder()
