"""Find the node property data sets of OGB by name under a local root, or download them into it.

Nothing is asked on standard input, so a batch job cannot hang. A missing set is downloaded, or the command ends with one message
that says what to do.

References
----------
Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", 2020; addresses as in `ogb.nodeproppred`'s master.csv (1.3.6).
"""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError, UsageError
from .atomic import new_folder, sync_folder
from .result_places import holding

_BASE = "http://snap.stanford.edu/ogb/data/nodeproppred"
_TIMEOUT_SECONDS = 60.0  # without a byte
_PIECE = 2**20


class OgbSet(NamedTuple):
    """A data set: the name of its archive and of the folder in it, and whether `ogb` adds v -> u for every u -> v."""

    archive: str
    adds_inverse: bool


SETS = {
    "ogbn-arxiv": OgbSet("arxiv", False),
    "ogbn-products": OgbSet("products", True),
    "ogbn-proteins": OgbSet("proteins", True),
    "ogbn-papers100M": OgbSet("papers100M-bin", False),
    "ogbn-mag": OgbSet("mag", False),
}


def locate(name: str, root: str | os.PathLike[str], download: bool = True, base: str = _BASE) -> Path:
    """Return the folder of a data set, which holds ``raw`` and ``split``, below the folder of all data sets.

    A set may be in ogbn_arxiv (as `ogb` names it), ogbn-arxiv or arxiv; one that is not there is downloaded. Raises `UsageError` if it
    cannot be, and `DataError` if the download is damaged.
    """
    archive, place = SETS[name].archive, Path(root)
    folders = [place / folder for folder in (name.replace("-", "_"), name, archive)]
    for folder in folders:
        if (folder / "raw").is_dir():
            return folder
    address = f"{base}/{archive}.zip"
    by_hand = f"use {address} unpacked in {place}"
    if not download:
        raise UsageError(f"{name} is not in {place}: none of {', '.join(folder.name for folder in folders)} has a folder raw; {by_hand}")
    file = place / f"{archive}.zip.part"
    try:
        with holding(folders[0]):
            _download(address, file)
            _unpack(file, archive, folders[0])
            file.unlink()
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise UsageError(f"{name} is not in {place} and could not be downloaded: {getattr(error, 'reason', error)}; {by_hand}") from None
    except OSError as error:
        raise UsageError(f"{name} cannot be written to {place}: {error.strerror or error}") from None
    return folders[0]


def _download(address: str, file: Path) -> None:
    """Download a file, continuing an earlier download; raises the errors of urllib, and `UsageError` if the disk is too small."""
    had = file.stat().st_size if file.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={had}-"} if had else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and had:  # the file is complete
            return
        raise
    with answer, open(file, "ab" if answer.status == http.HTTPStatus.PARTIAL_CONTENT else "wb") as out:
        size = int(answer.headers.get("Content-Length") or 0)
        free = shutil.disk_usage(file.parent).free
        if 2 * size > free:  # the archive and its contents
            raise UsageError(f"{address} is {size / 1e9:.1f} GB, to be unpacked; {file.parent} has {free / 1e9:.1f} GB free")
        before = out.tell()
        with _progress(f"downloading {address}", size) as advance:
            while piece := answer.read(_PIECE):
                out.write(piece)
                advance(len(piece))
        if size and out.tell() - before != size:
            raise ConnectionError(f"the download ended after {out.tell() - before} of {size} bytes; run the same command to continue")


def _unpack(file: Path, archive: str, target: Path) -> None:
    """Unpack a data set beside its target, and rename it into place."""
    try:
        with new_folder(target) as made, zipfile.ZipFile(file) as packed:
            members = [member for member in packed.infolist() if member.filename.startswith(f"{archive}/")]
            with _progress(f"unpacking {file.name}", sum(member.file_size for member in members)) as advance:
                for member in members:
                    packed.extract(member, made)  # `extract` drops path parts that lead outside
                    advance(member.file_size)
            if not (made / archive / "raw").is_dir():
                raise DataError(f"{file}: holds no folder {archive}/raw")
            for path in list((made / archive).iterdir()):
                path.rename(made / path.name)
            (made / archive).rmdir()
            for path in made.rglob("*"):
                sync_folder(path)  # a file is opened and synced alike
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        file.unlink()
        raise DataError(f"{file}: is damaged and was removed: {error}; run the same command to download it again") from None


@contextmanager
def _progress(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, or one line elsewhere; yields the function to call with the number of new bytes."""
    print(f"bulksample: {what}, {size / 1e9:.3g} GB", file=sys.stderr)
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    with Progress(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=size)
        yield lambda more: bar.advance(task, more)
