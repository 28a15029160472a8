"""Random Qwen2.5-VL models of a chosen size, for measuring speed and memory: real classes, no training."""

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ridgerank.backbones.qwen2_5_vl import Qwen25VL


def small_qwen(
    *, layers: int, width: int, head_dim: int, max_pixels: int
) -> tuple[Qwen25VL, Qwen2_5_VLForConditionalGeneration]:
    """A backbone and its model: four heads, an MLP of four times the width, a vision tower of four layers."""
    tokenizer = _tokenizer()
    ids = tokenizer.convert_tokens_to_ids
    torch.manual_seed(0)
    half = head_dim // 2
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": width // head_dim,
            "num_key_value_heads": width // head_dim,
            "vocab_size": len(tokenizer),
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [half // 4, half * 3 // 8, half * 3 // 8],
            },
        },
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": width,
            "fullatt_block_indexes": [3],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    model = Qwen2_5_VLForConditionalGeneration(config).eval()
    processor = Qwen2VLImageProcessorPil()
    Qwen25VL.limit_pixels(processor, max_pixels)
    return Qwen25VL(f"random-{layers}x{width}", model, tokenizer, processor), model


def _tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows the prompt's words and control tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, show_progress=False, initial_alphabet=alphabet)
    words = [Qwen25VL.prompt.instruction, "user\nsystem\nassistant\nyes\nno"]
    backend.train_from_iterator(words * 9, trainer)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    backend.add_special_tokens([*control, "<|image_pad|>", "<|video_pad|>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
