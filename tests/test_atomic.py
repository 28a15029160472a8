import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from ridgerank.atomic import list_scratch_files, replace_file, replace_text_file
from ridgerank.errors import WriteError


def test_a_failed_write_leaves_the_old_file_and_a_finished_one_makes_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "run.trec"
    target.write_text("old")

    def write_half() -> None:
        with replace_text_file(target) as file:
            file.write("half of the new")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_half()
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run.trec"]
    target = tmp_path / "deep" / "run.trec"
    with replace_text_file(target) as file:
        file.write("ω")
    assert target.read_bytes() == "ω".encode()


def test_a_file_keeps_its_permissions_and_a_new_one_gets_those_of_any(tmp_path: Path) -> None:
    plain, secret = tmp_path / "plain", tmp_path / "secret"
    plain.touch()
    secret.touch(mode=0o600)
    for path in (secret, tmp_path / "new"):
        with replace_file(path) as scratch:
            scratch.write_bytes(b"x")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    target, link = tmp_path / "runs" / "run.trec", tmp_path / "latest"
    link.symlink_to(target)
    for text in ("created", "replaced"):
        with replace_text_file(link) as file:
            file.write(text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert not list_scratch_files(target)


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    with replace_text_file(pipe) as file:
        file.write("a run")
    reader.join(30)
    assert received == ["a run"]
    assert pipe.is_fifo()


def test_stdout_is_written_to_where_it_stands(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ridgerank.atomic import replace_text_file\n"
        "with replace_text_file(Path('/dev/stdout')) as file: file.write('second\\n')"
    )
    log = tmp_path / "log"
    log.write_text("first\n")
    with log.open("a") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert log.read_text() == "first\nsecond\n"
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert piped.stdout == b"second\n"


def test_a_folder_and_a_full_disk_are_errors_of_ours_that_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="is a folder; name a file"), replace_file(tmp_path):
        pass
    with (
        pytest.raises(WriteError, match=r"run\.trec cannot be written: No space left"),
        replace_file(tmp_path / "run.trec"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())
