"""`mini-qwen`: a Qwen2.5-VL before training."""

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from miniature.training.initial_vision import start_qwen_vision
from miniature.training.initial_weights import start_decoder, start_embeddings, start_feed_forward
from miniature.training.trainable_model import (
    LAYERS,
    WIDTH,
    TrainableModel,
    decoder_settings,
    image_settings,
    word_kinds,
)
from miniature.training.word_tokenizer import make_tokenizer
from ridgerank.backbones.vision import Qwen25VL

CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


def make_mini_qwen(seed: int, *, layers: int = LAYERS) -> TrainableModel:
    """A Qwen2.5-VL with its first weights."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(CONTROL, end="<|im_end|>")
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config=decoder_settings(tokenizer, layers),
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": WIDTH,
            "temporal_patch_size": 1,
            "fullatt_block_indexes": [1, 3],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        start_qwen_vision(model.model.visual)
        text = model.model.language_model
        start_embeddings(
            text.embed_tokens.weight,
            kinds=word_kinds(tokenizer),
            blank=ids("<|image_pad|>"),
            sink=ids("<|vision_start|>"),
        )
        start_decoder(text)
        for layer in text.layers:
            mlp = layer.mlp
            start_feed_forward(mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    return TrainableModel(model, tokenizer, Qwen2VLImageProcessorPil(**image_settings()), Qwen25VL)
