"""`mini-glm`: a GLM-4.1V before training.

What differs from `mini-qwen`: neighbouring channels turn together, what a layer adds is normalised first, the
vision tower sees the whole page in every layer and merges patches by a convolution.
"""

import torch
from torch import Tensor
from transformers import Glm4vConfig, Glm4vForConditionalGeneration
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.glm4v.modeling_glm4v import Glm4vTextModel

from miniature.training.initial_weights import (
    EMBEDDING_SCALE,
    start_decoder,
    start_embeddings,
    start_feed_forward,
)
from miniature.training.mini_qwen import make_tokenizer, start_glm_vision
from miniature.training.trainable_model import (
    LAYERS,
    WIDTH,
    TrainableModel,
    decoder_settings,
    image_settings,
    word_kinds,
)
from ridgerank.backbones.vision import Glm41V

CONTROL = (
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|user|>",
    "<|assistant|>",
    "<|begin_of_image|>",
    "<|image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|video|>",
    "<|end_of_video|>",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
)


def make_mini_glm(seed: int, *, layers: int = LAYERS) -> TrainableModel:
    """A GLM-4.1V with its first weights."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(CONTROL, end="<|user|>")
    ids = tokenizer.convert_tokens_to_ids
    config = Glm4vConfig(
        text_config=decoder_settings(tokenizer, layers),
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "num_heads": 4,
            "attention_bias": True,
            "image_size": 336,
            "temporal_patch_size": 1,
            "out_hidden_size": WIDTH,
            "intermediate_size": 512,
        },
        image_token_id=ids("<|image|>"),
        video_token_id=ids("<|video|>"),
        image_start_token_id=ids("<|begin_of_image|>"),
        image_end_token_id=ids("<|end_of_image|>"),
        video_start_token_id=ids("<|begin_of_video|>"),
        video_end_token_id=ids("<|end_of_video|>"),
        tie_word_embeddings=False,
    )
    model = Glm4vForConditionalGeneration(config)
    with torch.no_grad():
        start_glm_vision(model.model.visual)
        text = model.model.language_model
        start_embeddings(
            text.embed_tokens.weight,
            kinds=word_kinds(tokenizer),
            blank=ids("<|image|>"),
            sink=ids("<|begin_of_image|>"),
        )
        start_decoder(text)
        _settle(text)
    return TrainableModel(model, tokenizer, Glm4vImageProcessorPil(**image_settings()), Glm41V)


def _settle(text: Glm4vTextModel) -> None:
    """Bring first weights made for halves that turn together into GLM's order, and scale what is added."""
    for layer in text.layers:
        gate, up = layer.mlp.gate_up_proj.weight.chunk(2)
        start_feed_forward(gate, up, layer.mlp.down_proj.weight)
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            for weights in (projection.weight, projection.bias):
                weights.copy_(_neighbouring(weights, layer.self_attn.head_dim))
        layer.post_self_attn_layernorm.weight.fill_(EMBEDDING_SCALE)
        layer.post_mlp_layernorm.weight.fill_(EMBEDDING_SCALE / 2)


def _neighbouring(rows: Tensor, dim: int) -> Tensor:
    """Within every head of `dim` rows, put row i + dim/2 behind row i."""
    order = torch.arange(dim).view(2, dim // 2).t().flatten()
    heads = torch.arange(len(rows)).view(-1, dim)
    return rows[heads[:, order].flatten()]
