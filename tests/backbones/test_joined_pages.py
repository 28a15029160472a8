"""How many pages are unpacked at once changes the memory, not the states."""

import pytest
import torch
from PIL.Image import Image

from ridgerank.backbones import decoder
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import JoinedPages
from ridgerank.backbones.prefix import Geometry, Prefix, PrefixBatch

QUERIES = ["What was the revenue in 2023?", "yes", "a longer query about 12345 and 67890"]
GEOMETRY = Geometry(layers=2, width=8, query_heads=2, kv_heads=2, head_dim=4)


def random_prefix(positions: int, seed: int) -> Prefix:
    keys, values = torch.randn(2, 2, 2, positions, 4, generator=torch.Generator().manual_seed(seed))
    return Prefix(keys, values, torch.ones(positions, dtype=torch.bool), (1, positions), positions)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_CACHED_BYTES", 1)


@pytest.mark.usefixtures("one_at_a_time")
def test_one_page_is_unpacked_at_a_time_and_the_suffix_stands_behind_it() -> None:
    prefixes = [random_prefix(positions, seed) for seed, positions in enumerate((5, 3, 4))]
    own_keys, own_values = torch.randn(2, 3, 2, 6, 4)
    joined = JoinedPages(PrefixBatch(prefixes), GEOMETRY, pairs=3, suffix=6, like=own_keys)
    seen = 0
    for pair, keys, values in joined.join(1, own_keys, own_values):
        assert (pair.start, pair.stop) == (seen, seen + 1)
        assert keys.shape == values.shape == (1, 2, 5 + 6, 4)
        length = prefixes[seen].keys.shape[2]
        assert torch.equal(keys[0, :, :length], prefixes[seen].keys[1])
        assert torch.equal(values[0, :, :length], prefixes[seen].values[1])
        assert torch.equal(keys[0, :, 5:], own_keys[seen])
        assert torch.equal(values[0, :, 5:], own_values[seen])
        seen += 1
    assert seen == 3


@pytest.mark.usefixtures("one_at_a_time")
def test_memory_does_not_grow_with_the_number_of_pages() -> None:
    own = torch.zeros(1, 2, 6, 4)
    for pages in (1, 20):
        batch = PrefixBatch([random_prefix(5, seed) for seed in range(pages)])
        joined = JoinedPages(batch, GEOMETRY, pairs=pages, suffix=6, like=own)
        assert {part.keys.data_ptr() for part in joined.join(0, own, own)} == {joined._keys.data_ptr()}
        assert joined._keys.shape[0] == 1


def test_one_page_for_many_suffixes_is_read_once_a_layer() -> None:
    reads = []

    class Counted(PrefixBatch):
        def fill(self, index: int, keys: torch.Tensor, values: torch.Tensor, *, start: int = 0) -> None:
            reads.append(index)
            super().fill(index, keys, values, start=start)

    own = torch.randn(7, 2, 6, 4)
    prefix = random_prefix(5, 0)
    joined = JoinedPages(Counted([prefix]), GEOMETRY, pairs=7, suffix=6, like=own)
    joined._at_once = 3
    parts = [(part.pairs, part.keys.clone()) for part in joined.join(1, own, own)]
    assert reads == [1]
    assert [len(keys) for _, keys in parts] == [3, 3, 1]
    for pairs, keys in parts:
        assert torch.equal(keys[:, :, :5], prefix.keys[1].expand(len(keys), -1, -1, -1))
        assert torch.equal(keys[:, :, 5:], own[pairs])


def test_states_and_attention_are_those_of_all_pages_at_once(
    backbone: Backbone, pages: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = backbone.encode(pages, exit_layer=4)
    batch, single = PrefixBatch(encoded), PrefixBatch(encoded[:1])

    def run() -> list[torch.Tensor]:
        attention = [backbone.attention(QUERIES[0], batch, state=state) for state in ("last", "mean")]
        return [
            backbone.states(QUERIES[:1], batch),
            backbone.states(QUERIES, single),
            backbone.states(QUERIES[:1], batch, state="mean"),
            backbone.states(QUERIES[:2], batch, owners=[0, *[1] * (len(pages) - 1)]),
            *(part for each in attention for part in (each.states, each.over_prefix, each.over_suffix)),
        ]

    together = run()
    monkeypatch.setattr(decoder, "_CACHED_BYTES", 1)
    for one, other in zip(run(), together, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
