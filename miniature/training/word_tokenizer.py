"""The tokenizer of the miniature: every word of its world is one token."""

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from miniature.vocabulary import PAGE_WORDS, QUERY_WORDS

SENTENCES = (
    "You are a helpful assistant.",
    "Above is a page of a document.",
    "Does it help to answer the query below?",
    "Answer with one word, yes or no.",
    "Query:",
)
"""What the prompt always says: one token each, so that a page is little more than its visual tokens."""
PROMPT_WORDS = ("system", "user", "assistant", "yes", "no", "\n")


def make_tokenizer(control: Sequence[str], *, end: str) -> PreTrainedTokenizerFast:
    """A tokenizer that knows every word of the miniature, and spells what it does not know in bytes.

    `control` are the family's control tokens, `end` the one that ends a turn; padding is `<|endoftext|>`.
    """
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
    backend.add_special_tokens(list(control))
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=end, pad_token="<|endoftext|>")
