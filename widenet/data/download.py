"""Downloads files: complete and checked, or not at all; an interrupted download can be resumed."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from widenet.durable import appearing, force_to_disk
from widenet.errors import DataError

_BLOCK_BYTES = 2**20
_TIMEOUT_SECONDS = 60
_PARTIAL, _BAD_RANGE = 206, 416

OnBytes = Callable[[int, int | None], None]


def place_of(url: str, folder: Path) -> Path:
    """The file of a URL in a folder of downloads."""
    return folder / url.rsplit("/", 1)[-1]


def download(url: str, folder: Path, checksum: str | None = None, on_bytes: OnBytes | None = None) -> Path:
    """Download a file to a folder, unless it is there already.

    An interrupted download resumes on the next call if the server confirms that the file has not changed.

    Args:
        url: URL of the file.
        folder: The folder.
        checksum: "md5:..." or "sha256:..."; None if it is unknown. Then the SHA-256 of the first download is
            recorded beside the file, and compared on later calls.
        on_bytes: Called with the number of bytes that are there, and the total if it is known.

    Raises:
        DataError: The file cannot be read, or has another checksum.
    """
    path = place_of(url, folder)
    recorded = path.with_name(f"{path.name}.sha256")
    if path.exists():
        _check_file(path, checksum, recorded)
        return path
    folder.mkdir(parents=True, exist_ok=True)
    partial, tag = path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.tag")
    try:
        _fetch(url, partial, tag, on_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(
            f"{url}: the server answers {error.code} {error.reason}. Try later, or put the file at {path}."
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        have = f"; {partial.stat().st_size:,} bytes are kept" if partial.exists() else ""
        raise DataError(
            f"{url}: cannot be read: {reason}{have}. Run the command again, or put the file at {path}."
        ) from None
    if checksum is not None and (actual := _checksum(partial, checksum)) != checksum:
        partial.unlink()
        raise DataError(
            f"{url}: must have the checksum {checksum}; got {actual}, which is another file. It was removed;"
            " try again."
        )
    force_to_disk(partial)
    partial.rename(path)
    tag.unlink(missing_ok=True)
    if checksum is None:
        _check_file(path, None, recorded)
    return path


def _fetch(url: str, partial: Path, tag: Path, on_bytes: OnBytes | None) -> None:
    """Complete the partial file; raises OSError if the answer ends before its length."""
    with _request(url, partial, tag) as answer:
        is_resumed = answer.status == _PARTIAL
        if is_resumed and not (answer.headers.get("Content-Range") or "").startswith(
            f"bytes {partial.stat().st_size}-"
        ):
            partial.unlink()
            raise OSError("the server sent another part of the file than requested")
        done = partial.stat().st_size if is_resumed else 0
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length is not None and length.isdecimal() else None
        tag.write_text(answer.headers.get("ETag") or "", encoding="utf-8")
        with partial.open("ab" if is_resumed else "wb") as file:
            while block := answer.read(_BLOCK_BYTES):
                file.write(block)
                done += len(block)
                if on_bytes is not None:
                    on_bytes(done, total)
        if total is not None and done < total:
            raise OSError(f"the connection ended after {done:,} of {total:,} bytes")


def _request(url: str, partial: Path, tag: Path) -> Any:
    """Request the file, or the rest of it if the server can tell that it has not changed."""
    known = tag.read_text(encoding="utf-8", errors="replace") if tag.exists() else ""
    if partial.exists() and known and not known.startswith("W/"):
        headers = {"Range": f"bytes={partial.stat().st_size}-", "If-Range": known}
        try:
            return _opened(urllib.request.Request(url, headers=headers))  # noqa: S310
        except urllib.error.HTTPError as error:
            if error.code != _BAD_RANGE:
                raise
            error.close()
    return _opened(urllib.request.Request(url))  # noqa: S310


def _opened(request: urllib.request.Request) -> Any:
    return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)  # noqa: S310


def _check_file(path: Path, checksum: str | None, recorded: Path) -> None:
    """Compare a file with its checksum, or with the recorded one; records it if there is neither.

    Raises:
        DataError: The checksum differs.
    """
    known = (
        checksum
        or (recorded.read_text(encoding="utf-8", errors="replace").strip() if recorded.exists() else "")
        or None
    )
    actual = _checksum(path, known or "sha256:")
    if known is None:
        with appearing(recorded) as file:
            file.write(f"{actual}\n".encode())
    elif actual != known:
        raise DataError(
            f"{path}: must have the checksum {known}; got {actual}, which is another file. Remove it, and run"
            " the command again."
        )


def _checksum(path: Path, like: str) -> str:
    """The checksum of a file, of the same kind as `like`."""
    kind = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"
