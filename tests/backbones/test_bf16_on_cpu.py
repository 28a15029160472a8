"""Half precision on a CPU without units for it: the same numbers, by float32 products."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 (its usual name)

from ridgerank.backbones import decoder as module
from ridgerank.backbones.decoder import bf16_on_cpu, mean_log_probability

CPU = torch.device("cpu")


def test_a_large_product_is_the_float32_one_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_has_units", lambda _: False)
    torch.manual_seed(0)
    rows, weight, bias = (torch.randn(*shape).bfloat16() for shape in ((40, 64), (32, 64), (32,)))
    exact = F.linear(rows.float(), weight.float(), bias.float()).bfloat16()
    out = torch.empty(40, 32, dtype=torch.bfloat16)
    with bf16_on_cpu(CPU, torch.bfloat16):
        assert torch.equal(F.linear(rows, weight, bias), exact)
        torch.addmm(bias, rows, weight.t(), out=out)
        assert F.linear(rows[:3], weight).dtype == torch.bfloat16
    assert torch.equal(out, exact)


def test_nothing_changes_in_float32_or_where_there_are_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_has_units", lambda _: True)
    for dtype in (torch.float32, torch.bfloat16):
        with bf16_on_cpu(CPU, dtype) as mode:
            assert mode is None


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
