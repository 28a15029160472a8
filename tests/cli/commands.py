"""Ways to run the command in tests."""

import subprocess
import sys

from typer.testing import CliRunner, Result

from ridgerank.cli.main import app

RUN = [sys.executable, "-m", "ridgerank"]


def invoke(*words: object, code: int = 0) -> Result:
    """Run the command in this process; an error of ours is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def run_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process, as a shell would."""
    return subprocess.run([*RUN, *map(str, arguments)], capture_output=True, text=True, check=False)
