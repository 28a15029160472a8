"""Small text models as ONNX files: an embedder as a retriever, and a trained cross encoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file
from ridgerank.extras import require_packages
from ridgerank.lineage import fingerprint
from ridgerank.ragged import Floats
from ridgerank.retrievers.base import TextRetriever
from ridgerank.store.page_store import PageStore

BGE_QUERY = "Represent this sentence for searching relevant passages: "
"""What BGE's authors put before a query."""
_TOKENS, _BATCH = 512, 8


class OnnxModel:
    """A folder of `model.onnx` and `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        require_packages("onnxruntime", "tokenizers")
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        self.name, options = folder.name, SessionOptions()
        options.intra_op_num_threads = 1
        self._session = InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_TOKENS, strategy="longest_first")
        self._tokenizer.enable_padding()

    def run(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(texts, …): the first output for texts or pairs of them; those of similar length run together."""
        order = sorted(range(len(texts)), key=lambda number: len("".join(texts[number])))
        rows: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            read: list[Any] = self._tokenizer.encode_batch([texts[number] for number in batch])
            inputs = {
                "input_ids": np.array([each.ids for each in read]),
                "attention_mask": np.array([each.attention_mask for each in read]),
                "token_type_ids": np.array([each.type_ids for each in read]),
            }
            [first, *_] = self._session.run(None, inputs)
            rows |= dict(zip(batch, first[:, 0] if first.ndim == 3 else first, strict=True))
        return np.stack([rows[number] for number in range(len(texts))])


class OnnxCrossEncoder(OnnxModel):
    """Reads a query and a text together; a `TextJudge`."""

    def judge(self, query: str, texts: Sequence[str]) -> Floats:
        """Scores (texts,)."""
        return self.run([(query, text) for text in texts])[:, 0].astype(np.float64)


class OnnxEmbedder(TextRetriever):
    """Pages by the cosine of their text's vector, that of the first position, and the query's."""

    def __init__(self, folder: Path, store: PageStore, *, work: Path) -> None:
        """Embed the pages of a store, unless `work` has their vectors."""
        self.name = self.identity = f"dense:{folder.name}"
        self._model = OnnxModel(folder)
        texts = self._read_texts(store, str.strip)
        path = work / f"{fingerprint({'pages': self._ids, 'model': self.name})}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as scratch, scratch.open("wb") as file:
                np.save(file, self._embed(list(texts.values())))
        self._pages = np.load(path)
        self._pages[[not text.strip() for text in texts.values()]] = 0.0

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        vectors = self._model.run(texts)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)

    def _scores(self, queries: Sequence[str]) -> Floats:
        vectors = self._embed([BGE_QUERY + query for query in queries])
        return np.asarray(vectors @ self._pages.T, dtype=np.float64)
