"""`mini-colqwen` and `mini-colqwen-small`: late-interaction retrievers with `mini-qwen`'s vision tower.

They are of transformers' own `ColQwen2ForRetrieval`, over a Qwen2.5-VL with a shallow decoder.
"""

from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import torch
from torch.nn.init import normal_
from transformers import ColQwen2Config, ColQwen2ForRetrieval
from transformers.models.colqwen2.processing_colqwen2 import ColQwen2Processor

from miniature.training.initial_weights import start_feed_forward
from miniature.training.lessons import read_checkpoint
from miniature.training.mini_qwen import make_mini_qwen
from miniature.training.trainable_model import WIDTH, TrainableModel

VISION, EMBEDDINGS = "model.visual.", "model.language_model.embed_tokens."
PREFIX = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|><|im_end|>"
"""The page part of a prompt; there is nothing to describe for a model that does not speak."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainableRetriever:
    """A retriever before or during training, beside the model whose vision tower and words it has."""

    model: ColQwen2ForRetrieval
    processor: ColQwen2Processor
    vision_model: TrainableModel


def make_mini_colqwen(seed: int, vision_checkpoint: Path, *, layers: int, dim: int) -> TrainableRetriever:
    """A retriever with its first weights; `vision_checkpoint` is of a `mini-qwen` that can read."""
    vision_model = make_mini_qwen(seed, layers=layers)
    torch.manual_seed(seed)
    config = ColQwen2Config(vlm_config=vision_model.model.config, embedding_dim=dim)
    model = ColQwen2ForRetrieval(config)
    weights = {
        name.replace("model.", "vlm.", 1): weight
        for name, weight in read_checkpoint(vision_checkpoint).items()
        if name.startswith((VISION, EMBEDDINGS))
    }
    model.load_state_dict(weights, strict=False)
    with torch.no_grad():
        normal_(model.embedding_proj_layer.weight, std=1 / sqrt(WIDTH))
        for layer in model.vlm.language_model.layers:
            normal_(layer.self_attn.v_proj.weight, std=1 / sqrt(WIDTH))
            normal_(layer.self_attn.o_proj.weight, std=0.005)
            mlp = layer.mlp
            start_feed_forward(mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    processor = ColQwen2Processor(
        vision_model.image_processor,
        vision_model.tokenizer,
        visual_prompt_prefix=PREFIX,
        query_prefix="Query: ",
    )
    return TrainableRetriever(model, processor, vision_model)
