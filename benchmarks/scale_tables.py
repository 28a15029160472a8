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


def _ratio(by_pages: dict[str, Any], pages: str, digits: int) -> str:
    first = next(iter(by_pages.values()))
    return f"{by_pages[pages] / first:.{digits}f}x"


SCALE_TABLES: TableMakers = {"object store": object_store_table, "growth": growth_table}
