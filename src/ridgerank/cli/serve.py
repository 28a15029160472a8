"""`ridgerank serve`: the reranker behind HTTP."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli._console import echo
from ridgerank.cli._options import (
    MACHINES,
    RANKED,
    BackboneName,
    CalibratedRetriever,
    Device,
    Dtype,
    Ray,
    ReadoutName,
    Store,
)
from ridgerank.extras import require_packages
from ridgerank.serving.serve_settings import Dialect

if TYPE_CHECKING:
    from ridgerank.scaleout.ray_serving import ServePlan
    from ridgerank.serving.service import Service


def serve_command(
    store: Store,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; any but loopback wants --api-key-file.",
            rich_help_panel="Who may call",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 for a free one.", rich_help_panel="Who may call")
    ] = 8080,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File of keys, one per line; requests then need one of them.", rich_help_panel="Who may call"
        ),
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth",
            help="Listen beyond loopback without keys: anyone may call.",
            rich_help_panel="Who may call",
        ),
    ] = False,
    encode_missing: Annotated[
        bool,
        typer.Option(
            "--encode-missing",
            help="Encode texts and images that are not stored on the fly.",
            rich_help_panel=RANKED,
        ),
    ] = False,
    dialect: Annotated[
        Dialect,
        typer.Option(help="Whose answers and errors to give where other servers contradict each other."),
    ] = "ridgerank",
    served_model_name: Annotated[
        str | None,
        typer.Option(help="The model's name in answers. [default: from the backbone's]", show_default=False),
    ] = None,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Log a line of JSON per request, with its id.")
    ] = False,
    tracing: Annotated[
        bool,
        typer.Option("--tracing", help="Send OpenTelemetry spans where OTEL_EXPORTER_OTLP_ENDPOINT says."),
    ] = False,
    max_requests: Annotated[
        int,
        typer.Option(
            min=1,
            help="Requests admitted at once; more are refused for a while (429).",
            rich_help_panel="Load",
        ),
    ] = 16,
    max_candidates: Annotated[
        int, typer.Option(min=1, max=1000, help="Candidates per request.", rich_help_panel="Load")
    ] = 200,
    deadline: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds after which a request is given up.", rich_help_panel="Load"),
    ] = 30,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=16,
            help="Requests, or shares of them, that run at once. [default: 1; 2 on a CPU]",
            rich_help_panel="Load",
        ),
    ] = None,
    processes: Annotated[
        bool | None,
        typer.Option(
            "--processes/--threads",
            help="Workers as processes, each with the model in memory, or as threads that share it and give "
            "fewer answers per second. [default: processes on a CPU, for models of a tenth of its memory]",
            show_default=False,
            rich_help_panel="Load",
        ),
    ] = None,
    cache_mb: Annotated[
        int, typer.Option(min=1, help="Memory for pages, in MB, of all workers.", rich_help_panel="Load")
    ] = 1024,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge",
            help="Let callers judge pages; judgements are kept beside the store.",
            rich_help_panel="Judging and traffic",
        ),
    ] = False,
    traffic_log: Annotated[
        Path | None,
        typer.Option(
            help="Keep queries, candidates and scores in this file, no page text: for calibrate --traffic.",
            show_default=False,
            rich_help_panel="Judging and traffic",
        ),
    ] = None,
    traffic_log_mb: Annotated[
        int,
        typer.Option(min=1, help="Most it may hold; older lines go.", rich_help_panel="Judging and traffic"),
    ] = 32,
    readout: ReadoutName = "default",
    retriever: CalibratedRetriever = None,
    backbone: BackboneName = None,
    ray: Ray = None,
    replicas: Annotated[
        str,
        typer.Option(
            help="With --ray: how many, or the least and the most, as 1-4.", rich_help_panel=MACHINES
        ),
    ] = "1",
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="With --ray: a further store, NAME=STORE, requested by name.",
            show_default=False,
            rich_help_panel=MACHINES,
        ),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Serve a calibrated store: the rerank API of existing clients, and a web page.

    With `--ray` it runs as a deployment of Ray Serve; requests that name a corpus in the header
    `serve_multiplexed_model_id` go to replicas that have its pages in memory, where there are any.

    Example: `ridgerank serve --store pages`, then open http://127.0.0.1:8080
    """
    require_packages("torch", "lance", "fastapi", "uvicorn")
    from ridgerank.reranker.options import RerankerOptions, open_calibrated
    from ridgerank.serving.serve_settings import LOOPBACK, Limits, ServeSettings, read_keys

    keys = () if api_key_file is None else read_keys(api_key_file)
    local = _is_loopback(host)
    if not local and not keys and not no_auth:
        raise typer.BadParameter(
            f"{host} can be reached by others, who would need no key; give --api-key-file, or --no-auth if "
            "that is meant",
            param_hint="--host",
        )
    limits = Limits(admitted=max_requests, candidates=max_candidates, deadline_seconds=deadline)
    hosts = LOOPBACK | {host.lower()} if local else None
    if json_logs:
        _log_json()
    if ray is not None and (judge or traffic_log is not None):
        raise typer.BadParameter(
            "judgements and the traffic log are kept by one process: leave --ray out", param_hint="--ray"
        )
    settings = ServeSettings(
        limits,
        keys,
        hosts,
        encode_missing,
        workers,
        processes,
        dialect,
        served_model_name,
        tracing,
        judge=judge,
        traffic_log=traffic_log,
        traffic_bytes=traffic_log_mb << 20,
    )
    options = RerankerOptions(
        readout=readout,
        retriever=retriever,
        backbone=backbone,
        device=device,
        dtype=dtype,
        cache_bytes=cache_mb << 20,
    )
    if ray is not None:
        from ridgerank.scaleout.ray_serving import ServePlan

        plan = ServePlan(stores=_parse_corpora(store, corpus or []), settings=settings, options=options)
        _serve_on_ray(ray, plan, replicas, host, port)
        return
    if corpus:
        raise typer.BadParameter("several corpora are served with --ray", param_hint="--corpus")
    open_calibrated(store, readout).pages.close()  # a wrong path is reported before torch is imported
    from ridgerank.serving.build import open_service

    _run(open_service(store, options, settings), host, port)


def _log_json() -> None:
    """Write every record as a line of JSON, and one record for each request."""
    import logging
    import sys

    from ridgerank.serving.request_log import JsonFormatter, log

    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
    requests = logging.StreamHandler(sys.stderr)
    requests.setFormatter(JsonFormatter())
    log.addHandler(requests)
    log.setLevel(logging.INFO)
    log.propagate = False  # the root's handler leaves out what is no warning


def _parse_corpora(store: str, corpora: list[str]) -> dict[str, str]:
    """Name → store; the first is called `default`."""
    stores = {"default": store}
    for corpus in corpora:
        name, equals, uri = corpus.partition("=")
        if not (name and equals and uri) or name in stores:
            raise typer.BadParameter(f"{corpus!r}, wanted NAME=STORE, each name once", param_hint="--corpus")
        stores[name] = uri
    return stores


def _serve_on_ray(address: str, plan: "ServePlan", replicas: str, host: str, port: int) -> None:
    """Deploy, then wait until interrupted; the deployment ends with the command."""
    import signal
    from threading import Event

    from ridgerank.indexing.ray import connect_ray, plan_workers
    from ridgerank.scaleout.ray_serving import Replicas, deploy, undeploy

    counts = re.fullmatch(r"(\d+)(?:-(\d+))?", replicas)
    least, most = (int(counts[1]), int(counts[2] or counts[1])) if counts else (0, 0)
    if not 1 <= least <= most:
        raise typer.BadParameter(f"{replicas!r}, wanted a number, or two as 1-4", param_hint="--replicas")
    with connect_ray(address) as cluster:
        cluster_workers = plan_workers(cluster, 1, plan.options.device)
        deploy(
            plan,
            Replicas(least, most, num_cpus=cluster_workers.num_cpus, num_gpus=cluster_workers.num_gpus),
            host=host,
            port=port,
        )
        echo(f"{', '.join(plan.stores)}: {replicas} replicas on Ray; http://{host}:{port}")
        stop_requested = Event()
        for number in (signal.SIGINT, signal.SIGTERM):  # Ray would end on the second without undeploying
            signal.signal(number, lambda *_: stop_requested.set())
        while not stop_requested.wait(1.0):
            pass
        echo("stopping")
        undeploy()


def _run(service: "Service", host: str, port: int) -> None:
    from ridgerank.serving.http_server import bind, serve_on

    listening = bind(host, port)  # bound here, so that the address names the port that 0 stands for
    address = f"http://{host}:{listening.getsockname()[1]}"
    echo(f"{len(service.reranker.store)} pages, {service.model}; {address}")
    serve_on(service, listening)


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
