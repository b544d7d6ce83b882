"""Weights on the Hugging Face Hub, by names such as hf:OWNER/NAME or hf:OWNER/NAME@REVISION.

A repository holds safetensors, their description and the SHA-256 sums of both, and nothing that could run. The network
is used only where such a name is given.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from vonet.errors import BadInput, missing_package

PREFIX = "hf:"
SUMS = "SHA256SUMS"


def fetch(name: str, file: str) -> Path:
    """A file of the repository, from the Hub or from huggingface_hub's cache; its checksum is verified."""
    hub = _hub(name)
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    with _explained(name, "no copy is in its cache. Check the network, or give the path of weights on this machine"):
        paths = [Path(hub.hf_hub_download(repository, wanted, revision=revision or None)) for wanted in (SUMS, file)]
    sums, found = paths
    if f"{sum_of(found)}  {file}" not in sums.read_text(encoding="utf-8").splitlines():
        raise BadInput(f"{file} of {name} does not have the checksum in {SUMS}: get it again, or ask its owner")
    return found


def push(files: Sequence[Path], name: str, private: bool) -> str:
    """Upload these files and their checksums to the repository `name`, which is created if it does not exist. Returns
    its address."""
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", name):
        raise _no_name(name)
    hub = _hub("vonet push")
    sums = "".join(f"{sum_of(file)}  {file.name}\n" for file in files)
    added = [hub.CommitOperationAdd(file.name, str(file)) for file in files]
    added.append(hub.CommitOperationAdd(SUMS, sums.encode()))
    api = hub.HfApi(library_name="vonet")
    with _explained(name, "nothing was uploaded. Check the network, and try again"):
        url = api.create_repo(name, private=private or None, exist_ok=True)
        api.create_commit(name, added, commit_message="Add weights of vonet")
    return str(url)


def sum_of(path: Path) -> str:
    """The SHA-256 sum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hub(wanted_by: str) -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise missing_package(wanted_by, "huggingface_hub") from None
    return huggingface_hub


@contextmanager
def _explained(name: str, offline: str) -> Iterator[None]:
    """Describes an error in one sentence. `offline`: End of the sentence if the Hub does not answer."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError:
        raise _no_name(name) from None
    except (errors.EntryNotFoundError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        if isinstance(error, errors.LocalEntryNotFoundError):
            raise _unreachable(name, offline) from None
        raise BadInput(f"{name} is not on the Hub, is private, or was not put there by vonet push") from None
    except errors.HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            raise BadInput(f"The Hub refuses {name}: log in with `hf auth login`, as one who may do this") from None
        raise BadInput(f"The Hub refuses {name} ({str(error).splitlines()[0]})") from None
    except (OSError, errors.HTTPError):
        raise _unreachable(name, offline) from None


def _no_name(name: str) -> BadInput:
    return BadInput(f"the repository is {name!r}; it must be OWNER/NAME on the Hub")


def _unreachable(name: str, offline: str) -> BadInput:
    return BadInput(f"{name} cannot be reached: the Hugging Face Hub does not answer, and {offline}")
