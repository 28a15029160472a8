"""The small models before training: tokenizer, image processor, configuration.

They are of exactly the classes that the 7B models use. What is chosen here is what makes them learn fast on
two cores: a vocabulary of whole words, rotary frequencies that suit a grid of 12 x 16 cells, and first
weights (`first_weights.py`) that already look to the left and already match equal words.
"""

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ridgerank.miniature.first_weights import start_decoder, start_embeddings, start_vision
from ridgerank.miniature.vocabulary import (
    ENTITIES,
    FIELDS,
    MEASURES,
    PAGE_WORDS,
    QUERY_WORDS,
    SUBJECTS,
    YEARS,
)
from ridgerank.miniature.world import HEIGHT_PIXELS, WIDTH_PIXELS

LAYERS, WIDTH, HEADS = 8, 192, 4
SECTIONS = (14, 5, 5)
"""Rotary frequencies of a head that turn with time, row and column."""
SLOWEST, FASTEST = 0.02, 1.2
"""Radians a position: time turns slowly and so carries content, columns turn fast."""

CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
SENTENCES = (
    "You are a helpful assistant.",
    "Above is a page of a document.",
    "Does it help to answer the query below?",
    "Answer with one word, yes or no.",
    "Query:",
)
"""What the prompt always says: one token each, so that a page is little more than its visual tokens."""
PROMPT_WORDS = ("system", "user", "assistant", "yes", "no", "\n")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that knows every word of the miniature, and spells what it does not know in bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    whole = dict.fromkeys((*PAGE_WORDS, *QUERY_WORDS, *PROMPT_WORDS, *SENTENCES))
    spelled = [as_bytes.pre_tokenize_str(text)[0][0] for text in whole]
    vocabulary = {text: number for number, text in enumerate(dict.fromkeys((*alphabet, *spelled)))}
    backend = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    sentences = "|".join(text.replace("?", r"\?").replace(".", r"\.") for text in SENTENCES)
    pieces = Regex(sentences + r"|\n|\p{L}+|\p{N}+|[^\s\p{L}\p{N}]")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pieces, behavior="removed", invert=True), as_bytes]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(CONTROL))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def make_image_processor() -> Qwen2VLImageProcessorPil:
    """The image processor, at the size of a drawn page; white paper is zero, so that ink is all there is."""
    pixels = WIDTH_PIXELS * HEIGHT_PIXELS
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": 28 * 28, "longest_edge": pixels},
        temporal_patch_size=1,
        image_mean=[1.0, 1.0, 1.0],
        image_std=[0.5, 0.5, 0.5],
    )


def make_mini_qwen(
    tokenizer: PreTrainedTokenizerFast, seed: int, *, layers: int = LAYERS
) -> Qwen2_5_VLForConditionalGeneration:
    """A Qwen2.5-VL with its first weights."""
    torch.manual_seed(seed)
    frequencies = sum(SECTIONS)
    spread = (SLOWEST / FASTEST) ** (frequencies / (frequencies - 1))
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 4096,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            # Rising frequencies: theta below 1, slowed down as a whole.
            "rope_parameters": {
                "rope_type": "linear",
                "rope_theta": spread,
                "factor": 1 / SLOWEST,
                "mrope_section": list(SECTIONS),
            },
        },
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
    kinds = [ids(list(kind)) for kind in (ENTITIES, MEASURES, (*FIELDS, *YEARS), SUBJECTS)]
    with torch.no_grad():
        start_vision(model.model.visual)
        text = model.model.language_model
        blank, sink = ids("<|image_pad|>"), ids("<|vision_start|>")
        start_embeddings(text.embed_tokens.weight, kinds=kinds, blank=blank, sink=sink)
        start_decoder(text)
    return model
