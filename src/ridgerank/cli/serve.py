"""`ridgerank serve`: the reranker behind HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli.calibrate import BackboneName, Device, Dtype, Store
from ridgerank.cli.search import Readout

if TYPE_CHECKING:
    from ridgerank.serving.service import Service

GRACE_SECONDS = 10


def serve(
    store: Store,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but loopback wants --api-key-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for a free one.")] = 8080,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File of keys, one a line; requests then need one of them.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Listen beyond loopback without keys: anyone may call.")
    ] = False,
    encode_missing: Annotated[
        bool,
        typer.Option("--encode-missing", help="Encode texts and images that are not stored on the fly."),
    ] = False,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Requests admitted at once; more are told to come back (429).")
    ] = 16,
    max_candidates: Annotated[int, typer.Option(min=1, max=1000, help="Candidates of a request.")] = 200,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = 30,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="Threads that run the model. [default: 1; 2 on a CPU]"),
    ] = None,
    cache_mb: Annotated[int, typer.Option(min=1, help="Memory for pages, in MB.")] = 1024,
    readout: Readout = "default",
    retriever: Annotated[
        str | None, typer.Option(help="Retriever. [default: the one that was calibrated]")
    ] = None,
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Serve a calibrated store: the rerank API people already call, and a page to look at.

    Example: `ridgerank serve --store pages`, then open http://127.0.0.1:8080
    """
    from ridgerank.serving.settings import LOOPBACK, Limits, Settings, default_workers, read_keys

    keys = () if api_key_file is None else read_keys(api_key_file)
    local = _is_loopback(host)
    if not local and not keys and not no_auth:
        raise typer.BadParameter(
            f"{host} can be reached by others, who would need no key; give --api-key-file, or --no-auth if "
            "that is meant",
            param_hint="--host",
        )
    import torch

    from ridgerank.backbones.load import parse_dtype
    from ridgerank.reranker import Reranker
    from ridgerank.serving.service import Service

    reranker = Reranker.open(
        store,
        readout=readout,
        backbone=backbone,
        retriever=retriever,
        cache_bytes=cache_mb << 20,
        device=device,
        dtype=parse_dtype(dtype),
    )
    on = reranker.backbone.device.type
    count = workers or default_workers(on)
    if on == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // count))
    settings = Settings(
        limits=Limits(admitted=max_requests, candidates=max_candidates, deadline_seconds=deadline),
        keys=keys,
        hosts=LOOPBACK | {host.lower()} if local else None,
        encode_missing=encode_missing,
        workers=count,
    )
    _run(Service(reranker, settings, readout=readout), host, port)


def _run(service: "Service", host: str, port: int) -> None:
    import uvicorn

    from ridgerank.serving.app import create_app

    config = uvicorn.Config(
        create_app(service),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=1000,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    typer.echo(f"{len(service.reranker.store)} pages, {service.model}; http://{host}:{port}", err=True)
    server.run()


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
