"""A model repository on a hub: what is in it, its small files, and its large ones as streams that survive lost connections.

All through `huggingface_hub`, which is imported when a repository is opened: its settings (HF_ENDPOINT, HF_TOKEN, proxies) hold.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import NotFound, WeightsError

CHUNK_BYTES = 1 << 20
_TRIES = 6  # in a row without a byte
_PATIENCE_S = 1.0  # before the second try, doubled each time
_AGAIN = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class HubFile:
    """`sha256` of large files; the others have `git_sha1`, git's object id."""

    name: str
    size_bytes: int
    sha256: str
    git_sha1: str


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor inside a safetensors file: `dtype` as the format names it, bytes [start, end) of the file's data."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Repository:
    """One commit of `repo`. Raises NotFound when there is no such repository, or it is closed to this user, and WeightsError
    when the hub cannot be reached."""

    def __init__(self, repo: str, revision: str | None = None) -> None:
        from huggingface_hub import HfApi

        self.repo = repo
        self._api = HfApi()
        with told(repo):
            info = self._api.model_info(repo, revision=revision, files_metadata=True)
        self.commit = str(info.sha or revision or "main")
        self.files = {
            sibling.rfilename: HubFile(
                sibling.rfilename,
                sibling.size or 0,
                sibling.lfs.sha256 if sibling.lfs else "",
                sibling.blob_id or "",
            )
            for sibling in info.siblings or ()
        }

    def fetch(self, file: str, folder: Path) -> Path:
        """Download a small file into `folder`."""
        from huggingface_hub import hf_hub_download

        with told(self.repo):
            return Path(
                hf_hub_download(self.repo, file, revision=self.commit, local_dir=folder, endpoint=self._api.endpoint)
            )

    def tensors(self, file: str) -> tuple[dict[str, TensorPlace], int]:
        """The header of a safetensors file, without the rest of it: (places by tensor, where the file's data begins)."""
        from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

        with told(self.repo):
            try:
                found = self._api.parse_safetensors_file_metadata(self.repo, file, revision=self.commit)
            except (SafetensorsParsingError, NotASafetensorsRepoError) as error:
                raise WeightsError(f"{self.repo}/{file} is no safetensors file ({_first_line(error)}).") from error
        places = {
            name: TensorPlace(str(tensor.dtype), tuple(tensor.shape), *tensor.data_offsets)
            for name, tensor in found.tensors.items()
        }
        data_bytes = max((place.end for place in places.values()), default=0)
        return places, self.files[file].size_bytes - data_bytes

    def stream(self, file: str) -> Iterator[bytes]:
        """The bytes of a file in order, checked against the hub's checksum at the end. A lost connection is taken up where it
        broke. Raises WeightsError when that fails time and again, and when the checksum is wrong."""
        expected = self.files[file]
        sum_ = hashlib.sha256() if expected.sha256 else hashlib.sha1(f"blob {expected.size_bytes}\0".encode())  # noqa: S324 - git's own
        done = failures = 0
        while done < expected.size_bytes:
            try:
                for chunk in self._range(file, done):
                    sum_.update(chunk)
                    done, failures = done + len(chunk), 0
                    yield chunk
                if done < expected.size_bytes:
                    raise _Lost("the connection was closed early")
            except _Lost as lost:
                failures += 1
                if failures == _TRIES:
                    raise WeightsError(
                        f"{self.repo}/{file} could not be downloaded beyond byte {done} ({lost}).",
                        "The same command goes on where it stopped.",
                    ) from lost
                print(f"Connection lost at byte {done:,} of {file} ({lost}); trying again.", file=sys.stderr)
                time.sleep(_PATIENCE_S * 2 ** (failures - 1))
        wanted = expected.sha256 or expected.git_sha1
        if done != expected.size_bytes or (wanted and sum_.hexdigest() != wanted):
            raise WeightsError(
                f"{self.repo}/{file} is corrupt as it arrived: its checksum is {sum_.hexdigest()} and should be {wanted}.",
                "Nothing of this file is used. Try again, without a proxy or mirror if there is one.",
            )

    def _range(self, file: str, start: int) -> Iterator[bytes]:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # public, but not in its __all__
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        session: Any = get_session()
        transport = importlib.import_module(type(session).__module__.partition(".")[0])
        url = hf_hub_url(self.repo, file, revision=self.commit, endpoint=self._api.endpoint)
        headers = {**build_hf_headers(), "Range": f"bytes={start}-", "Accept-Encoding": "identity"}
        skip = 0
        try:
            with session.stream("GET", url, headers=headers, follow_redirects=True, timeout=60) as response:
                if response.status_code in _AGAIN:
                    raise _Lost(f"HTTP {response.status_code}")
                with told(self.repo):
                    hf_raise_for_status(response)
                if response.status_code != 206:  # a server without ranges sends all of it
                    skip = start
                for chunk in _gathered(response.iter_raw(), transport.TransportError):
                    rest = chunk[skip:]
                    skip = max(0, skip - len(chunk))
                    if rest:
                        yield rest
        except (transport.TransportError, OSError) as error:
            raise _Lost(_first_line(error)) from error


def _gathered(pieces: Iterator[bytes], lost: type[Exception]) -> Iterator[bytes]:
    """Larger chunks of the same bytes. What came before the connection was lost is not lost with it."""
    gathered = bytearray()
    failure: Exception | None = None
    try:
        for piece in pieces:
            gathered += piece
            if len(gathered) >= CHUNK_BYTES:
                yield bytes(gathered)
                gathered.clear()
    except lost as error:
        failure = error
    if gathered:
        yield bytes(gathered)
    if failure is not None:
        raise failure


class _Lost(Exception):
    pass


@contextmanager
def told(repo: str) -> Iterator[None]:
    """Turns the library's errors into ours."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise NotFound(
            f"{repo} is only open to users who accepted its terms.", "Accept them on its page, and set HF_TOKEN."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise NotFound(
            f"There is no model {repo!r} on the hub.", "Check its name; a private one needs HF_TOKEN."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise NotFound(f"{repo} has no such revision ({_first_line(error)}).") from error
    except (errors.HfHubHTTPError, errors.EntryNotFoundError, errors.LocalEntryNotFoundError) as error:
        raise WeightsError(f"The hub does not give {repo} ({_first_line(error)}).", "Try again later.") from error
    except FtErrors:
        raise
    except Exception as error:  # the transport's errors, whichever HTTP library is behind it
        if not type(error).__module__.startswith("http"):
            raise
        raise WeightsError(
            f"The hub cannot be reached ({_first_line(error)}).",
            "Connect to the network, or set HF_ENDPOINT to a mirror; a folder is read with: ft models import",
        ) from error


FtErrors = (NotFound, WeightsError, _Lost)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
