"""A small random text embedder of Linq-Embed's kind: Mistral, read at its last token."""

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import MistralConfig, MistralModel

from tests.backbones.small_models import train_tokenizer


def build_embedder(
    folder: Path, *, pooling: str = "lasttoken", prompts: dict[str, str] | None = None, seed: int = 0
) -> Path:
    """Make it and save it as sentence-transformers does."""
    tokenizer = train_tokenizer(["<pad>", "<eos>", "<bos>"], [])
    config = MistralConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(seed)
    language_model = folder / "language-model"
    MistralModel(config).save_pretrained(language_model)
    tokenizer.save_pretrained(language_model)
    modules = [Transformer(str(language_model)), Pooling(32, pooling_mode=pooling)]
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(folder / "embedder"))
    return folder / "embedder"
