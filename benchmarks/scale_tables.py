"""The tables of docs/scale.md: what a bucket is asked for, and what grows with a store."""

from typing import Any

from benchmarks.markdown_tables import TableMakers, format_table, read_result


def object_store_table() -> str:
    """Requests and bytes by kind of store and of query."""
    result = read_result("object_store")
    rows = [
        [kind, what, f"{traffic['requests']:.0f}", f"{traffic['megabytes']:.2f} MB"]
        for kind in ("listed", "indexed")
        for what, traffic in result[kind].items()
        if isinstance(traffic, dict)
    ]
    return format_table(["store", "what", "requests", "bytes"], rows)


def growth_table() -> str:
    """Latency and retrieval as ratios to the smallest store, opening and memory as they are."""
    result = read_result("growth")
    rows = []
    for pages in map(str, result["pages"]):
        requests = [_ratio(result["rerank_p50_ms"][traffic], pages, 2) for traffic in ("equal", "uniform")]
        exact = result["retrieval_p50_ms"]["exact"]
        first = exact[str(result["pages"][0])]
        indexed = result["retrieval_p50_ms"]["indexed"].get(pages)
        opening = f"{result['open_s'][pages]:.2f} s"
        memory = f"{result['memory_above_model_mib'][pages]:.0f} MiB"
        shown = "none" if indexed is None else f"{indexed / first:.1f}x"
        rows.append([f"{int(pages):,}", *requests, opening, memory, _ratio(exact, pages, 1), shown])
    header = ["pages", "request, equal traffic", "request, uniform", "opening", "memory"]
    return format_table([*header, "exact retrieval", "indexed retrieval"], rows)


def plan_table() -> str:
    """What corpora of three sizes take, in both presets."""
    rows = []
    for pages, models in read_result("scale")["sizes"].items():
        for model, presets in models.items():
            for preset, figures in presets.items():
                rows.append(
                    [
                        pages,
                        model,
                        f"`{preset}`",
                        f"{figures['prefixes_tb']:,.1f} TB",
                        f"{figures['vectors_tb']:,.1f} TB",
                        f"{figures['gpu_hours']:,.0f}",
                        f"{figures['read_gb_s']:.1f} GB/s",
                        f"{100 * figures['hit_memory']:.0f} %",
                        f"{100 * figures['hit_disk']:.0f} %",
                        f"{figures['bucket_gb_s']:.1f} GB/s",
                        f"{figures['replicas']:.0f}",
                    ]
                )
    header = ["pages", "model", "preset", "prefixes", "vectors", "GPU hours", "read", "in memory", "on disk"]
    return format_table([*header, "from the bucket", "replicas"], rows)


def hit_rate_table() -> str:
    """Reads that memory, and memory or disk, answer, by the exponent of the traffic."""
    by_size = read_result("scale")["hit_rates"]
    exponents = list(next(iter(by_size.values())))
    rows = [
        [exponent]
        + [
            f"{100 * rates[exponent]['memory']:.0f} %, {100 * rates[exponent]['disk']:.0f} %"
            for rates in by_size.values()
        ]
        for exponent in exponents
    ]
    return format_table(["exponent", *by_size], rows)


def int8_bytes_table() -> str:
    """Bytes of a page in int8, by positions and layers."""
    by_model = read_result("scale")["page_bytes"]
    variants = list(next(iter(by_model.values())))
    rows = [[variant, *(f"{sizes[variant]:.1f} MB" for sizes in by_model.values())] for variant in variants]
    return format_table(["positions and layers", *by_model], rows)


def _ratio(by_pages: dict[str, Any], pages: str, digits: int) -> str:
    first = next(iter(by_pages.values()))
    return f"{by_pages[pages] / first:.{digits}f}x"


SCALE_TABLES: TableMakers = {
    "object store": object_store_table,
    "growth": growth_table,
    "scale": plan_table,
    "hit rates": hit_rate_table,
    "int8 bytes": int8_bytes_table,
}
