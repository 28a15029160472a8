"""A trained text cross encoder kept as ONNX: as a teacher, and as the level to overtake."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from ridgerank.documents.sources import digest_file
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats

_TOKENS = 512
_MODEL_FILES = ("model.onnx", "onnx/model.onnx")


def find_onnx(folder: Path) -> Path | None:
    """The ONNX file of a folder; None where there is none."""
    return next((path for name in _MODEL_FILES if (path := folder / name).is_file()), None)


class OnnxCrossEncoder:
    """A folder with `model.onnx` and `tokenizer.json`."""

    modalities = ("text",)

    def __init__(self, folder: Path) -> None:
        model, tokenizer = find_onnx(folder), folder / "tokenizer.json"
        if model is None or not tokenizer.is_file():
            missing = _MODEL_FILES[0] if model is None else tokenizer.name
            raise CalibrationError(
                f"{folder} has no {missing}; wanted a cross encoder as ONNX with its tokenizer"
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.fingerprint = digest_file(model).hex()
        """Of the file: other weights are another teacher."""
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(_TOKENS, strategy="only_second")
        self._tokenizer.no_padding()

    def score(self, query: str, texts: Sequence[str]) -> Floats:
        """One score for each text."""
        return self.predict([(query, text) for text in texts])

    def predict(self, pairs: Sequence[tuple[str, str]], **_: object) -> Floats:
        """One score for each pair of query and text, as sentence-transformers' encoders have it."""
        scores = []
        for query, text in pairs:
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
