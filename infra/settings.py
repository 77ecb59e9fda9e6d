"""Everything that a deployer sets, from the environment: the one place that reads it."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ByteSize, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from bus.errors import StackConfigError
from bus.nats.connection import NatsConfig

PREFIX = "OMNIBUS_"

DEFAULT_WORKERS = "media=1,encode=1,speech=1,generate=1"


def _state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "omnibus"


class Settings(BaseSettings):
    """Settings by name; the environment variable of `port` is `OMNIBUS_PORT`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    data: Path = Field(default_factory=_state_folder, description="Folder of the embedded stack.")
    host: str = Field(default="127.0.0.1", description="Address that the gateway listens on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port of the gateway.")
    url: str | None = Field(default=None, description="Gateway that commands talk to; none: the embedded stack's.")
    api_key: SecretStr | None = Field(default=None, description="Key that HTTP clients must send; none: no check.")
    nats_url: str = Field(default="nats://127.0.0.1:4222", description="The bus, where it is not embedded.")
    nats_token: SecretStr | None = Field(default=None, description="Token of the bus.")
    nats_credentials: str | None = Field(default=None, description="Path of a NATS .creds file.")
    nats_replicas: int = Field(default=1, ge=1, le=5, description="Copies of streams and buckets.")
    ack_wait_s: float = Field(default=5.0, gt=0, description="A message without a sign of life for so long moves on.")
    store_url: str | None = Field(default=None, description="file:///folder or s3://bucket?endpoint=…")
    store_access_key: str = Field(default="", description="For S3.")
    store_secret_key: SecretStr = Field(default=SecretStr(""), description="For S3.")
    models: Path | None = Field(default=None, description="Models folder; none: in the user's cache folder.")
    models_from: str | None = Field(
        default=None,
        description="s3://bucket/prefix that models which are not here are fetched from; see `models push`.",
    )
    download_part: ByteSize = Field(
        default=ByteSize(8 << 20), ge=1, description="Bytes of a model file that are asked for at once, such as 8MiB."
    )
    download_connections: int = Field(default=4, ge=1, description="Parts of a model file that are read at once.")
    model_memory: ByteSize | None = Field(
        default=None, description="Memory for a worker's models, such as 2GB; none: as much as the host has."
    )
    pinned: str = Field(default="", description="Functions and models that stay in memory, separated by commas.")
    encoder_cache: ByteSize = Field(
        default=ByteSize(1 << 30), description="Media that stay encoded for all requests, such as 2GB; 0: none do."
    )
    share_encoded: bool = Field(
        default=False, description="Whether tenants share them; the time would tell who sent what."
    )
    device: str = Field(default="auto", pattern="^(auto|tensorrt|cuda|cpu)$", description="What models run on.")
    device_fallback: bool = Field(default=False, description="Whether the next device will do where that is missing.")
    repeatable: bool = Field(default=True, description="Whether no answer depends on who else is served.")
    graphs: Path | None = Field(default=None, description="Folder of optimised graphs; none: in the models folder.")
    keep_graphs: bool = Field(default=True, description="Whether optimised graphs are kept and shared by processes.")
    tensors: Path | None = Field(default=None, description="Folder of this host's shared tensors.")
    functions: str = Field(default="", description="Packages with functions of your own, separated by commas.")
    pipelines: str = Field(default="", description="Folders with pipelines of your own, separated by commas.")
    workers: str = Field(default=DEFAULT_WORKERS, description="Workers by group in the embedded stack.")
    warm: Path | None = Field(
        default=None, description="Deployment file: how warm functions are kept; workers then come and go as needed."
    )
    scale_to_zero: bool = Field(
        default=False, description="Start workers when they are needed, and let them go; `workers` says nothing then."
    )
    groups: str = Field(
        default="", description="Function groups whose workers come and go here, separated by commas; none: all."
    )
    worker_memory: ByteSize | None = Field(
        default=None, description="The most memory of all workers that come and go, such as 8GB; none: what is free."
    )
    fork: bool = Field(default=True, description="Whether workers are forked from a template, where that is safe.")
    worker_age_s: float = Field(default=86_400.0, ge=0, description="Age at which a worker is replaced; 0: never.")
    worker_messages: int = Field(default=0, ge=0, description="Messages after which it is replaced; 0: never.")
    worker_growth: ByteSize = Field(
        default=ByteSize(1 << 30), description="Memory that it may gain once it is warm before it is replaced; 0: any."
    )
    threads: int = Field(default_factory=lambda: max(1, os.cpu_count() or 1), ge=1, description="Cores of a worker.")
    grace_s: float = Field(default=10.0, gt=0, description="How long running work may go on after a stop.")
    media_hosts: str | None = Field(default=None, description="Hosts that media URLs may name; see FetchPolicy.")
    media_ports: str | None = Field(default=None, description="Ports that media URLs may name; see FetchPolicy.")
    media_networks: str | None = Field(default=None, description="Private networks that media URLs may reach.")
    media_timeout_s: float | None = Field(default=None, description="For one media URL, redirects included.")
    keep_days: float = Field(default=8.0, ge=0, description="Days that media and tensors are kept; 0: for ever.")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="What is logged.")

    @property
    def nats(self) -> NatsConfig:
        """How to reach the bus."""
        token = None if self.nats_token is None else self.nats_token.get_secret_value()
        return NatsConfig(
            url=self.nats_url,
            token=token,
            credentials=self.nats_credentials,
            replicas=self.nats_replicas,
            ack_wait_s=self.ack_wait_s,
        )

    @property
    def store(self) -> str:
        """URL of the object store: the data folder's own unless one is set."""
        return self.store_url or (self.data.absolute() / "store").as_uri()

    @property
    def worker_counts(self) -> dict[str, int]:
        """Workers by group.

        Raises:
            StackConfigError: Not of the form `media=1,encode=2`.
        """
        counts = {}
        for part in self.workers.split(","):
            group, _, number = part.strip().partition("=")
            if not group or not number.isdigit():
                raise StackConfigError(f"{PREFIX}WORKERS is like {DEFAULT_WORKERS!r}, not {self.workers!r}")
            counts[group] = int(number)
        return counts

    @property
    def modules(self) -> tuple[str, ...]:
        """Packages with functions of the deployer's own."""
        return _parts(self.functions)

    @property
    def own_groups(self) -> tuple[str, ...]:
        """Function groups that this host serves; none: all."""
        return _parts(self.groups)

    @property
    def pinned_models(self) -> tuple[str, ...]:
        """Functions and models that stay in memory."""
        return _parts(self.pinned)

    @property
    def pipeline_folders(self) -> tuple[Path, ...]:
        """Folders with pipelines of the deployer's own."""
        return tuple(Path(part) for part in _parts(self.pipelines))


def load_settings(**overrides: Any) -> Settings:
    """The settings of the environment, with overrides from the command line; None means not given.

    Raises:
        StackConfigError: Lists every value that is wrong and every variable that is not known.
    """
    problems = [
        f"{name} is not a setting{_hint(name)}"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name[len(PREFIX) :].lower() not in Settings.model_fields
    ]
    try:
        settings = Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            name = PREFIX + "_".join(str(part) for part in problem["loc"]).upper()
            problems.append(f"{name}: {problem['msg']} (got {problem['input']!r})")
    if problems:
        raise StackConfigError("settings: " + "; ".join(problems), problems=problems)
    return settings


def _hint(name: str) -> str:
    near = get_close_matches(name, [PREFIX + field.upper() for field in Settings.model_fields], n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
