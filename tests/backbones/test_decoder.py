"""Pages joined with suffixes in bounded memory, half precision by float32 products, weights of attention."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 (its usual name)

from ridgerank.backbones import decoder
from ridgerank.backbones.decoder import (
    Geometry,
    JoinedPages,
    Prefix,
    PrefixBatch,
    bf16_on_cpu,
    mean_log_probability,
)

GEOMETRY = Geometry(layers=2, width=8, query_heads=2, kv_heads=2, head_dim=4)


def random_prefix(positions: int, seed: int) -> Prefix:
    keys, values = torch.randn(2, 2, 2, positions, 4, generator=torch.Generator().manual_seed(seed))
    return Prefix(
        keys,
        values,
        torch.ones(positions, dtype=torch.bool),
        (1, positions),
        positions,
        torch.arange(positions)[None],
    )


def test_memory_does_not_grow_with_the_number_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_CACHED_BYTES", 1)
    own = torch.zeros(1, 2, 6, 4)
    for pages in (1, 20):
        batch = PrefixBatch([random_prefix(5, seed) for seed in range(pages)])
        joined = JoinedPages(batch, GEOMETRY, pairs=pages, suffix=6, like=own)
        assert {keys.data_ptr() for _, keys, _ in joined.join(0, own, own)} == {joined._keys.data_ptr()}
        assert joined._keys.shape[0] == 1


CPU = torch.device("cpu")


def test_a_large_product_is_the_float32_one_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_has_units", lambda _: False)
    torch.manual_seed(0)
    rows, weight, bias = (torch.randn(*shape).bfloat16() for shape in ((40, 64), (32, 64), (32,)))
    exact = F.linear(rows.float(), weight.float(), bias.float()).bfloat16()
    out = torch.empty(40, 32, dtype=torch.bfloat16)
    with bf16_on_cpu(CPU, torch.bfloat16):
        assert torch.equal(F.linear(rows, weight, bias), exact)
        torch.addmm(bias, rows, weight.t(), out=out)
        assert F.linear(rows[:3], weight).dtype == torch.bfloat16
    assert torch.equal(out, exact)


def test_a_likelihood_never_holds_the_whole_vocabulary_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    states, unembedding = torch.randn(2, 5, 8), torch.randn(100, 8)
    tokens = [[0, 4, 9, 2], [0, 7, 1]]
    monkeypatch.setattr("ridgerank.backbones.decoder._WORDS_AT_ONCE", 13)
    values = mean_log_probability(states, tokens, norm=lambda x: x, unembedding=unembedding)
    for pair, ids in enumerate(tokens):
        logs = (states[pair, : len(ids) - 1] @ unembedding.t()).log_softmax(dim=1)
        expected = logs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].mean()
        torch.testing.assert_close(values[pair], expected)
