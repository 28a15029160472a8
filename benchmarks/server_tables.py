"""Tables of the server: random arrivals in docs/benchmarks.md, crasher and soak in docs/security.md."""

from benchmarks.markdown_tables import TableMakers, format_table, read_result


def poisson_table() -> str:
    """Latency and throughput under random arrivals, at each rate first ours."""
    rows = [
        [
            f"{row['rate']:g}",
            row["server"],
            *(f"{row[f'p{quantile}_ms']:,.0f}" for quantile in (50, 95, 99)),
            f"{row['pairs_per_second']:.0f}",
            f"{row['refused']} of {row['requests']}",
        ]
        for row in read_result("serving_poisson")["rows"]
    ]
    return format_table(
        ["requests a second", "server", "p50 ms", "p95 ms", "p99 ms", "pairs a second", "refused"], rows
    )


def torture_table() -> str:
    """What the crasher did, and what it cost."""
    report = read_result("torture")
    faults = ", ".join(f"{kind} {number}" for kind, number in report["faults_by_kind"].items())
    row = [
        f"{report['seconds'] / 60:g}",
        f"{report['operations']:,}",
        f"{report['kills']}",
        faults,
        f"{report['lost']}",
        f"{report['wrong']}",
    ]
    return format_table(["minutes", "operations", "kills", "faults", "lost", "wrong"], [row])


def soak_table() -> str:
    """The memory of each of the server's processes, early and late."""
    report = read_result("torture_soak")
    rows = [
        [name.split()[0], *(f"{memory[when]:,.0f}" for when in ("early", "late", "peak"))]
        for name, memory in report["memory_mb"].items()
    ]
    return format_table(["process", "early MB", "late MB", "peak MB"], rows)


SERVER_TABLES: TableMakers = {
    "serving poisson": poisson_table,
    "torture": torture_table,
    "soak": soak_table,
}
