"""`ridgerank serve`: the reranker behind HTTP."""

import re
import signal
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli import _options
from ridgerank.cli._console import echo
from ridgerank.extras import require_packages
from ridgerank.serving.settings import Dialect, OnOverload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgerank.reranker.options import RerankerOptions
    from ridgerank.serving.settings import ServeSettings
    from ridgerank.serving.stores import ServedStore


caller_option = partial(typer.Option, rich_help_panel="Who may call")
load_option = partial(typer.Option, rich_help_panel="Load")
judging_option = partial(typer.Option, rich_help_panel="Judging and queries")


def serve_command(
    store: Annotated[
        list[str], typer.Option(help="Folder or URL of a calibrated store; several as NAME=PATH each.")
    ],
    host: Annotated[str, caller_option(help="Address; any but loopback needs --api-key-file.")] = "127.0.0.1",
    port: Annotated[int, caller_option(min=0, max=65535, help="Port; 0 for a free one.")] = 8080,
    api_key_file: Annotated[
        Path | None, caller_option(help="Keys, one per line, each with the stores it is limited to, if any.")
    ] = None,
    no_auth: Annotated[
        bool, caller_option("--no-auth", help="Listen beyond loopback without keys: anyone may call.")
    ] = False,
    encode_missing: Annotated[
        bool,
        _options.ranking(
            "--encode-missing/--stored-only", help="Encode texts and images that are not stored."
        ),
    ] = True,
    scores_from: Annotated[
        str | None, _options.ranking(help="The retriever whose scores requests bring if they name none.")
    ] = None,
    dialect: Annotated[
        Dialect, typer.Option(help="Whose answers and errors to give if other servers contradict each other.")
    ] = "ridgerank",
    served_model_name: Annotated[
        str | None, typer.Option(help="The model's name in answers. [default: from the backbone's]")
    ] = None,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Log a line of JSON per request, with its id.")
    ] = False,
    max_requests: Annotated[
        int, load_option(min=1, help="Requests admitted at once; more are refused for a while (429).")
    ] = 16,
    max_candidates: Annotated[int, load_option(min=1, max=1000, help="Candidates per request.")] = 200,
    on_overload: Annotated[
        OnOverload,
        load_option(help="When the model cannot answer in time: an error, or the retriever's order."),
    ] = "error",
    deadline: Annotated[float, load_option(min=0.1, help="Seconds after which a request is given up.")] = 30,
    workers: Annotated[
        int | None,
        load_option(
            min=1,
            max=16,
            help="Processes, each with the model in memory. [default: 1; 2 on a CPU for small models]",
        ),
    ] = None,
    cache_mb: Annotated[int, load_option(min=1, help="Memory for pages, in MB, of all workers.")] = 1024,
    judge: Annotated[
        bool, judging_option("--judge", help="Let callers judge pages; judgements are kept beside the store.")
    ] = False,
    query_log: Annotated[
        Path | None,
        judging_option(
            help="Keep the texts of queries in this file, one per worker: for calibrate --queries."
        ),
    ] = None,
    readout: _options.ReadoutName = "default",
    retriever: _options.CalibratedRetriever = None,
    backbone: _options.BackboneName = None,
    ray: _options.Ray = None,
    replicas: Annotated[
        str, _options.machine(help="With --ray: how many, or the least and the most, as 1-4.")
    ] = "1",
    device: _options.Device = None,
    dtype: _options.Dtype = None,
) -> None:
    """Serve calibrated stores: the rerank API of existing clients, and a web page.

    Several stores share one model. New pages, removed pages and new calibrations are taken up while it runs.

    With `--ray` it runs as a deployment of Ray Serve that grows and shrinks with the load. Traces are made
    by OpenTelemetry's own command: `opentelemetry-instrument ridgerank serve …`.

    Example: `ridgerank serve --store pages`, then open http://127.0.0.1:8080
    """
    require_packages("torch", "lance", "fastapi", "uvicorn")
    from ridgerank.reranker.options import RerankerOptions, open_calibrated
    from ridgerank.serving.settings import LOOPBACK, Limits, ServeSettings, read_keys

    stores = _named_stores(store)
    keys = {} if api_key_file is None else read_keys(api_key_file, stores)
    local = _is_loopback(host)
    if not local and not keys and not no_auth:
        raise typer.BadParameter(
            f"{host} can be reached by others, who would need no key; give --api-key-file, or --no-auth if "
            "that is meant",
            param_hint="--host",
        )
    if ray is not None and (judge or query_log is not None):
        raise typer.BadParameter(
            "judgements and queries are kept on one machine: leave --ray out", param_hint="--ray"
        )
    settings = ServeSettings(
        limits=Limits(admitted=max_requests, candidates=max_candidates, deadline_seconds=deadline),
        keys=keys,
        hosts=LOOPBACK | {host.lower()} if local else None,
        scores_from=scores_from,
        encode_missing=encode_missing,
        dialect=dialect,
        on_overload=on_overload,
        model_name=served_model_name,
        judge=judge,
        query_log=query_log,
        json_logs=json_logs,
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
        _serve_on_ray(ray, stores, options, settings, replicas, host, port)
        return
    if len(stores) == 1:  # a mistake is reported before torch is imported; of several, others may open
        open_calibrated(next(iter(stores.values())), readout)
    from ridgerank.serving.server import bind, serve

    listening = bind(host, port)  # bound here, so that the address names the port that 0 stands for
    echo(f"opening {', '.join(stores.values())} and loading its model")

    def say_started(opened: "Sequence[ServedStore]", workers: int) -> None:
        address = f"http://{host}:{listening.getsockname()[1]}"
        backbone = next(each.state.reranker.backbone for each in opened if each.is_open)
        echo(backbone.describe_memory() + (", in each worker" if workers > 1 else ""))
        pages = sum(len(each.state.reranker.store) for each in opened if each.is_open)
        found = f"{pages} pages" if len(opened) == 1 else f"{len(opened)} stores, {pages} pages"
        echo(f"{found}, {workers} worker{'s' if workers > 1 else ''}; {address}")

    serve(stores, options, settings, listening, workers=workers, started=say_started)


def _named_stores(given: list[str]) -> dict[str, str]:
    """Name → store, of `PATH` or of several `NAME=PATH`."""
    from ridgerank.serving.settings import STORE_NAME, UNNAMED

    stores: dict[str, str] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not path or not STORE_NAME.fullmatch(name) or name in stores:
            if len(given) == 1:
                return {UNNAMED: text}
            raise typer.BadParameter(
                f"{text!r}, expected NAME=PATH with a different name for each of several stores: letters, "
                "digits, '.', '_' and '-'",
                param_hint="--store",
            )
        stores[name] = path
    return stores


def _serve_on_ray(
    address: str,
    stores: dict[str, str],
    options: "RerankerOptions",
    settings: "ServeSettings",
    replicas: str,
    host: str,
    port: int,
) -> None:
    """Deploy, then wait until interrupted; the deployment ends with the command."""
    from ridgerank.indexing.ray import connect_ray, plan_workers
    from ridgerank.serving.server import deploy

    counts = re.fullmatch(r"(\d+)(?:-(\d+))?", replicas)
    least, most = (int(counts[1]), int(counts[2] or counts[1])) if counts else (0, 0)
    if not 1 <= least <= most:
        raise typer.BadParameter(f"{replicas!r}, expected a number, or two as 1-4", param_hint="--replicas")
    with connect_ray(address) as cluster:
        from ray import serve

        worker = plan_workers(cluster, 1, options.device)
        deploy(stores, options, settings, replicas=(least, most), worker=worker, host=host, port=port)
        echo(f"{replicas} replicas on Ray; http://{host}:{port}")
        stop_requested = Event()
        for number in (signal.SIGINT, signal.SIGTERM):  # Ray would end on the second without undeploying
            signal.signal(number, lambda *_: stop_requested.set())
        while not stop_requested.wait(1.0):
            pass
        echo("stopping")
        serve.shutdown()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
