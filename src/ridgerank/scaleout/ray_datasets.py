"""Records through a pool of workers by Ray Data: pickled on the way there and on the way back, in order."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ridgerank.scaleout.ray_cluster import ClusterWorkers, translate_ray_errors

_INPUT, _OUTPUT = "input", "output"
"""Columns of pickled records."""

Rows = dict[str, Any]
"""A batch of rows as Ray Data passes it: column → values."""


def map_on_workers(
    records: Sequence[object],
    worker: type,
    arguments: tuple[object, ...],
    *,
    workers: ClusterWorkers,
    blocks: int,
) -> Any:  # noqa: ANN401 (a data set of Ray)
    """A lazy data set: every record through a `worker(*arguments)`; Ray repeats what a lost worker had."""
    import ray.data
    from ray.data import ActorPoolStrategy, DataContext

    context = DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    inputs = [{_INPUT: pickle.dumps(record)} for record in records]
    return ray.data.from_items(inputs, override_num_blocks=blocks).map_batches(
        worker,
        fn_constructor_args=arguments,
        batch_size=1,
        compute=ActorPoolStrategy(size=min(workers.count, blocks)),
        **workers.resources,
    )


def map_records(rows: Rows, work: Callable[[Any], object]) -> Rows:
    """On a worker: the results of `work` for a batch of input records."""
    return write_records([work(pickle.loads(record)) for record in rows[_INPUT]])


def read_records(rows: Rows) -> list[Any]:
    """On a worker: a batch of records that an earlier step wrote."""
    return [pickle.loads(record) for record in rows[_OUTPUT]]


def write_records(records: Sequence[object]) -> Rows:
    """On a worker: a batch of result records."""
    column = np.empty(len(records), dtype=object)
    column[:] = [pickle.dumps(record) for record in records]
    return {_OUTPUT: column}


def iter_results(dataset: Any, doing: str, *, safe: str) -> Iterator[Any]:  # noqa: ANN401
    """The result records of a data set, in order; for `doing` and `safe` see `translate_ray_errors`."""
    with translate_ray_errors(doing, safe=safe):
        for row in dataset.iter_rows():
            yield pickle.loads(row[_OUTPUT])
