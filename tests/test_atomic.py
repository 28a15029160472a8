import stat
from pathlib import Path

import pytest

from ridgerank.atomic import replace_file, replace_text_file


def test_a_failed_write_leaves_the_old_file_and_no_scraps(tmp_path: Path) -> None:
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


def test_a_finished_write_replaces_the_file_and_makes_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "run.trec"
    with replace_text_file(target) as file:
        file.write("ω")
    assert target.read_bytes() == "ω".encode()


def test_the_file_gets_the_permissions_any_new_file_gets(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    with replace_file(tmp_path / "written") as scratch:
        scratch.write_bytes(b"x")
    assert stat.S_IMODE((tmp_path / "written").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
