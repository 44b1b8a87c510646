"""Why a cluster cannot live in a directory, and whether the one that does is well."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainmaster.cli import up
from trainmaster.cli.home import unusable, write_record
from trainmaster.cluster.kubelet.helper_keeper import trouble_file

ELSEWHERE = "choose another"


def an_error(number: int, filename: object = None) -> OSError:
    return OSError(number, os.strerror(number), None if filename is None else str(filename))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["full", "quota"])
@pytest.mark.parametrize("name", ["", "pki/ca.key"], ids=["nameless", "a file in it"])
def test_a_full_disk_is_named_by_what_could_not_be_written(tmp_path, number, name):
    error = an_error(number, tmp_path / name if name else None)

    told = unusable(tmp_path, error, ELSEWHERE)

    assert told == f"{tmp_path / name} cannot be written, the disk is full: free some space, or choose another"


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_the_file_in_the_way_is_named(tmp_path, below):
    file = tmp_path / "file"
    file.touch()

    told = unusable(file / below, an_error(errno.ENOTDIR, file / below), ELSEWHERE)

    assert told == f"{file} is not a directory: choose another"


@pytest.mark.parametrize("place", ["home", "home/pki", ""], ids=["itself", "in it", "above it"])
def test_what_else_is_wrong_is_told_in_the_systems_words(tmp_path, place):
    told = unusable(tmp_path / "home", an_error(errno.EROFS, tmp_path / place), ELSEWHERE)

    assert told.startswith(f"{tmp_path / place} cannot be used (Read-only file system): check the path")


@pytest.mark.parametrize(
    "error",
    [an_error(errno.EMFILE), an_error(errno.ENOENT, "/elsewhere/file"), an_error(errno.ENOSPC, "/elsewhere/file")],
    ids=["no file", "another file", "another disk"],
)
def test_other_errors_are_not_blamed_on_the_directory(error):
    assert unusable(Path("/home/me"), error, ELSEWHERE) == ""


def test_status_says_that_no_container_can_start_and_fails(tmp_path, capsys):
    write_record(tmp_path)
    well = up.status(tmp_path)
    trouble_file(tmp_path).write_text("no container can start: because")

    ill = up.status(tmp_path)

    assert (well, ill) == (0, 1)
    assert capsys.readouterr().err == "trainmaster status: no container can start: because\n"
