"""A trained text cross encoder, as ONNX: the level to overtake."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from ridgerank.ragged import Floats

_TOKENS = 512


class OnnxCrossEncoder:
    """A folder with `model.onnx` and `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_TOKENS, strategy="only_second")
        self._tokenizer.no_padding()

    def score(self, query: str, texts: Sequence[str]) -> Floats:
        """One score for each text."""
        scores = []
        for text in texts:
            encoded = self._tokenizer.encode(query, text)
            arrays = {
                "input_ids": encoded.ids,
                "attention_mask": encoded.attention_mask,
                "token_type_ids": encoded.type_ids,
            }
            feed = {
                name: np.array([ids], dtype=np.int64) for name, ids in arrays.items() if name in self._inputs
            }
            [logits, *_] = self._session.run(None, feed)
            scores.append(float(np.asarray(logits).ravel()[0]))
        return np.array(scores)
