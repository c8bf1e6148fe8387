"""The only user of huggingface_hub: what a repository says about a model, never its weights.

Fetched are `config.json`, `hf_quant_config.json`, the index and the headers of the safetensors files (range requests).
The client brings the token from the usual places (`HF_TOKEN`, `hf auth login`), the endpoint (`HF_ENDPOINT`), the cache
(`HF_HOME`) and the offline switch (`HF_HUB_OFFLINE`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeVar

from kvplan.core.dataclass import dataclass
from kvplan.errors import HubError, KvplanError, SpecError, UsageError
from kvplan.specs import registry, safetensors
from kvplan.specs.files import parse_json, read_bytes
from kvplan.specs.safetensors_header import StoredTensor, check_header, read_file

_REPOSITORY: Final = re.compile(r"^(?P<id>\w(?:[\w.\-]*\w)?/\w(?:[\w.\-]*\w)?)(@(?P<revision>[\w.\-/]+))?\Z", re.ASCII)
_LONGEST_ID: Final = 96
_LARGEST_JSON: Final = 64_000_000
_THREADS: Final = 16
_SECONDS_TO_ANSWER: Final = 10
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What a repository says about its model.

    Attributes:
        id: `owner/name`.
        revision: Branch, tag or commit that was asked for, or None.
        config: Its `config.json`.
        sidecar: Its `hf_quant_config.json`, or None.
        weights: Tensors in the headers of its safetensors files, or None where there are none or they could not be had.
        warnings: Why something is missing.
    """

    id: str
    revision: str | None
    config: Mapping[str, Any]
    sidecar: Mapping[str, Any] | None
    weights: tuple[StoredTensor, ...] | None
    warnings: tuple[str, ...] = field(default=())


def parse_name(name: str) -> tuple[str, str | None]:
    """Split `owner/name@revision`.

    >>> parse_name("Qwen/Qwen3-8B@main")
    ('Qwen/Qwen3-8B', 'main')

    Raises:
        UsageError: It is no repository id.
    """
    match = _REPOSITORY.match(name)
    if match is None or ".." in name or "--" in match["id"] or len(match["id"]) > _LONGEST_ID:
        msg = f"model: {name!r} is not a repository id"
        raise UsageError(msg, hint="write owner/name or owner/name@revision")
    return match["id"], match["revision"]


def fetch(name: str, *, headers: bool = True, network: bool = True) -> Repository:
    """Fetch a repository's metadata, from the cache where it is there and the hub is offline.

    Args:
        name: `owner/name`, with `@revision` where it is not the main branch.
        headers: Also read the headers of the weight files.
        network: False looks at the cache alone.

    Raises:
        HubError: The repository is missing, private or gated, or the hub can't be reached.
        SpecError: It has no `config.json`, or one that is broken.
    """
    repo_id, revision = parse_name(name)
    client = _Client(repo_id, revision)
    if network:
        client.knock()
    else:
        client.stay_in_cache()
    config = client.json_file("config.json")
    if config is None:
        msg = f"{name}: has no config.json"
        raise SpecError(msg, hint="download a GGUF and give its path; other repositories need a config.json")
    sidecar = client.json_file("hf_quant_config.json")
    weights, warnings = client.headers() if headers else (None, ())
    return Repository(
        id=repo_id, revision=revision, config=config, sidecar=sidecar, weights=weights, warnings=tuple(warnings)
    )


class _Client:
    """One repository at one revision, seen through huggingface_hub, with its errors translated."""

    def __init__(self, repo_id: str, revision: str | None) -> None:
        try:
            import huggingface_hub  # noqa: PLC0415 - half a second, and only needed here
            from huggingface_hub import errors  # noqa: PLC0415
            from huggingface_hub.utils.logging import set_verbosity_error  # noqa: PLC0415
            from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415
        except ImportError:
            msg = f"{repo_id}: repositories need the package huggingface_hub"
            raise HubError(msg, hint="pip install huggingface_hub") from None
        disable_progress_bars()
        set_verbosity_error()  # type: ignore[no-untyped-call]
        self.hub, self.errors = huggingface_hub, errors
        self.repo_id, self.revision = repo_id, revision
        self.cache_only = ""  # why only the cache is looked at
        self.api = huggingface_hub.HfApi(library_name="kvplan")

    def ask(self, question: Callable[[], _T]) -> _T:
        """Ask the client; its errors become ours. `EntryNotFoundError` passes."""
        errors = self.errors
        try:
            return question()
        except errors.LocalEntryNotFoundError as error:
            raise self._unreachable(error) from None
        except errors.EntryNotFoundError:
            raise
        except errors.GatedRepoError:
            msg = f"{self.repo_id}: is gated"
            hint = f"accept its terms at {self.endpoint}/{self.repo_id}, then set HF_TOKEN or run: hf auth login"
            raise HubError(msg, hint=hint) from None
        except errors.RevisionNotFoundError:
            msg = f"{self.repo_id}: has no revision {self.revision!r}"
            raise HubError(msg, hint=f"see {self.endpoint}/{self.repo_id}/tree/main") from None
        except errors.RepositoryNotFoundError:
            msg = f"{self.repo_id}: no such repository at {self.endpoint}, or it is private"
            raise HubError(
                msg, hint="check owner and name; for a private one set HF_TOKEN or run: hf auth login"
            ) from None
        except errors.HFValidationError:
            msg = f"model: {self.repo_id!r} is not a repository id"
            raise UsageError(msg, hint="write owner/name or owner/name@revision") from None
        except KvplanError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the client's HTTP library of the day raises
            raise self._unreachable(error) from None

    @property
    def endpoint(self) -> str:
        """Address of the hub."""
        return str(self.hub.constants.ENDPOINT)

    def _unreachable(self, error: Exception) -> HubError:
        if self.hub.constants.HF_HUB_OFFLINE or isinstance(error, self.errors.OfflineModeIsEnabled):
            msg = f"{self.repo_id}: is not in the cache, and HF_HUB_OFFLINE is set"
            return HubError(msg, hint="unset HF_HUB_OFFLINE, or give the path of a config.json")
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = f"answered {status}" if status else f"can't be reached ({type(error.__cause__ or error).__name__})"
        msg = f"{self.repo_id}: {self.endpoint} {reason}"
        bundled = registry.with_option("model", self.repo_id)
        hint = "check the connection and HF_ENDPOINT, or give the path of a config.json"
        return HubError(msg, hint=f"{hint}, or take the bundled {bundled}" if bundled else hint)

    def knock(self) -> None:
        """Ask once whether the hub is there: a download would try again and again for half a minute.

        Where the cache holds the config, a hub that can't be reached is no error.
        """
        if self.hub.constants.HF_HUB_OFFLINE:
            return
        url = self.hub.hf_hub_url(self.repo_id, "config.json", revision=self.revision, endpoint=self.endpoint)
        try:
            self.ask(lambda: self.hub.get_hf_file_metadata(url, timeout=_SECONDS_TO_ANSWER, library_name="kvplan"))
        except self.errors.EntryNotFoundError:
            return
        except HubError:
            if self._cached_path("config.json") is None:
                raise
            self.cache_only = f"{self.endpoint} can't be reached"

    def stay_in_cache(self) -> None:
        """Ask nobody: a name out of somebody else's file is no wish of the user's to have it fetched."""
        self.cache_only = "a name in a file is not fetched"
        if self._cached_path("config.json") is None:
            msg = (
                f"{self.repo_id}: is neither bundled nor in the hub's cache, and names in a file are not fetched "
                f"(`kvplan models show {self.repo_id}` does)"
            )
            raise HubError(msg)

    def _cached_path(self, filename: str) -> str | None:
        found = self.hub.try_to_load_from_cache(self.repo_id, filename, revision=self.revision)
        return found if isinstance(found, str) else None  # else a sign that the repository is known to have none

    def file(self, filename: str) -> Path | None:
        """A small file of the repository in the local cache, or None where the repository has none."""
        if self.cache_only:  # even for its cache alone, the client's download asks the network who its caller is
            cached = self._cached_path(filename)
            return None if cached is None else Path(cached)
        try:
            found = self.ask(
                lambda: self.hub.hf_hub_download(
                    self.repo_id,
                    filename,
                    revision=self.revision,
                    library_name="kvplan",
                    endpoint=self.endpoint,
                )
            )
        except self.errors.EntryNotFoundError:
            return None
        except HubError:
            if self._known_without(filename):
                return None
            raise
        return Path(found)

    def _known_without(self, filename: str) -> bool:
        """True where the cache holds the repository, but not this file: it had none, or nobody asked."""
        return filename != "config.json" and self._cached_path("config.json") is not None

    def json_file(self, filename: str) -> dict[str, Any] | None:
        """A JSON object of the repository, or None where it has no such file."""
        path = self.file(filename)
        if path is None:
            return None
        data = parse_json(read_bytes(path, most_bytes=_LARGEST_JSON), source=f"{self.repo_id}: {filename}")
        if not isinstance(data, dict):
            msg = f"{self.repo_id}: {filename}: must be an object"
            raise SpecError(msg)
        return data

    def headers(self) -> tuple[tuple[StoredTensor, ...] | None, tuple[str, ...]]:
        """The headers of the weight files: from the cache where it holds them whole, else by range requests.

        What can't be had is a warning: the config alone gives an estimate.
        """
        try:
            index = self.file(safetensors.INDEX_FILE)
            names = [safetensors.SINGLE_FILE]
            if index is not None:
                names = safetensors.shard_names(self.json_file(safetensors.INDEX_FILE), source=safetensors.INDEX_FILE)
            return self._cached(names) or self._remote(names), ()
        except self.errors.EntryNotFoundError:
            return None, ()
        except KvplanError as error:
            return None, (f"weights are counted from the config, their headers could not be read: {error}",)

    def _cached(self, names: list[str]) -> tuple[StoredTensor, ...] | None:
        paths = [Path(path) for path in map(self._cached_path, names) if path is not None]
        if len(paths) < len(names):
            return None
        return safetensors.gather((path.name, read_file(path)) for path in paths)

    def _remote(self, names: list[str]) -> tuple[StoredTensor, ...]:
        if self.cache_only:
            msg = f"{self.repo_id}: {self.cache_only}, and the cache holds only the config"
            raise HubError(msg)
        with ThreadPoolExecutor(max_workers=min(_THREADS, len(names))) as pool:
            return safetensors.gather(zip(names, pool.map(self._header, names), strict=True))

    def _header(self, filename: str) -> tuple[StoredTensor, ...]:
        metadata = self.ask(
            lambda: self.api.parse_safetensors_file_metadata(self.repo_id, filename, revision=self.revision)
        )
        entries = {
            name: {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": list(t.data_offsets)}
            for name, t in metadata.tensors.items()
        }
        return check_header(entries, source=filename)
