import numpy as np
import pytest
import torch

from ridgerank.store import layout
from ridgerank.store.cuda_staging import CudaStaging, DevicePrefix, view_device_prefix
from ridgerank.store.page_store import PageStore
from tests.store.pages import page_id, prefix


def assert_on_device(found: DevicePrefix, wanted: layout.PackedPrefix) -> None:
    for name in ("keys", "values", "key_scales", "value_scales"):
        np.testing.assert_array_equal(getattr(found, name).cpu().numpy(), getattr(wanted, name), err_msg=name)
    assert (found.next_position, found.count) == (wanted.next_position, len(wanted.positions))


def test_a_block_in_a_tensor_is_seen_as_the_arrays_it_holds() -> None:
    buffer = torch.zeros(0, dtype=torch.uint8)
    starts = []
    for number in (3, 4):
        starts.append(buffer.numel())
        buffer = torch.cat([buffer, torch.from_numpy(layout.pack(prefix(number)))])
    for number, start in zip((3, 4), starts, strict=True):
        block = layout.block_shape(prefix(number))
        found = view_device_prefix(block, buffer[start : start + block.nbytes])
        assert_on_device(found, prefix(number))
        assert found.keys.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: staging is not run here")
def test_requests_in_turn_arrive_on_the_device_whole(store: PageStore) -> None:
    staging = CudaStaging(1 << 20, torch.device("cuda"))
    for first in range(8):
        numbers = [first, first + 3, first + 1]
        loaded = staging.load(store, [page_id(number) for number in numbers])
        for number, found in zip(numbers, loaded, strict=True):
            assert_on_device(found, prefix(number))
