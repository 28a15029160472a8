"""Commands as a user would type them, for benchmarks that look at what these leave behind."""

import subprocess
import sys


def ridgerank(*words: object) -> None:
    """Run a command; what it says stays with it unless it fails."""
    command = [sys.executable, "-m", "ridgerank.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ridgerank {' '.join(map(str, words))}: {done.stderr[-2000:]}")
