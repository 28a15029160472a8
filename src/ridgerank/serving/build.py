"""The one place that builds a service: how many workers, threads or processes, and what each gets."""

from dataclasses import replace

import torch

from ridgerank.backbones.base import Backbone
from ridgerank.reranker.options import RerankerOptions
from ridgerank.serving.model_process import ModelProcess
from ridgerank.serving.serve_settings import ServeSettings, default_processes, default_workers
from ridgerank.serving.service import Service


def open_service(
    store: str, options: RerankerOptions, settings: ServeSettings, *, backbone: Backbone | None = None
) -> Service:
    """Open a calibrated store and start its workers; on a CPU they share its cores.

    With `backbone` this process uses a model that is in memory already. Worker processes divide the page
    cache among them and load a model each; the process that listens keeps its own, for explanations and for
    documents that are not stored.
    """
    reranker = options.open(store, backbone=backbone)
    device = reranker.backbone.device.type
    workers = settings.workers or default_workers(device)
    threads = torch.get_num_threads()
    if device == "cpu":
        threads = max(1, threads // workers)
        torch.set_num_threads(threads)
    processes: list[ModelProcess] = []
    use_processes = settings.processes
    if use_processes is None:
        use_processes = default_processes(device, workers, reranker.backbone.nbytes)
    if use_processes:
        worker_options = replace(options, cache_bytes=options.cache_bytes // workers)
        processes = [ModelProcess(worker_options, store, threads=threads) for _ in range(workers)]
    try:
        for process in processes:
            process.wait()
    except BaseException:
        for process in processes:
            process.close()
        reranker.close()
        raise
    settings = replace(settings, workers=workers)
    return Service(reranker, settings, readout=options.readout, processes=processes)
