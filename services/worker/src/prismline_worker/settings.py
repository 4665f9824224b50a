"""Settings of the worker, from the environment."""

from __future__ import annotations

from pydantic import Field, SecretStr

from prismline_contracts.resources import GPU
from prismline_runtime import ServiceSettings


class WorkerSettings(ServiceSettings, env_ignore_empty=True):
    """Settings of the worker. An empty variable counts as unset: a template cannot leave one out."""

    runs_table: str = Field(description="The ledger's table.")
    spectrum_budget_seconds: float = Field(default=5.0, gt=0, description="Time that one spectrum of a chunk may take.")
    deadline_margin_seconds: float = Field(
        default=60.0, ge=0, description="Time reserved at an invocation's end to write the output and the ledger."
    )
    gpu_resource: str = Field(default=GPU, description="The resource that captions need.")
    caption_base_url: str | None = Field(
        default=None,
        description="URL of the caption model, as in http://10.0.0.5:8000/v1; default: port 8000 of the instance.",
    )
    caption_model: str | None = Field(default=None, description="The model's name; default: the first in the list.")
    caption_api_key: SecretStr | None = Field(
        default=None, description="Bearer token of the endpoint, if it needs one."
    )
    caption_timeout_seconds: float = Field(default=60.0, gt=0, description="Longest wait for one answer of the model.")
    caption_tries: int = Field(default=3, ge=1, description="Requests in one attempt before the message goes back.")
    functions_runners: int | None = Field(
        default=None,
        ge=1,
        description="Items of functions that one process works on at a time; default: one for each core.",
    )
    functions_python: str | None = Field(
        default=None,
        description="The Python interpreter of the environment in which functions are installed; default: that of the"
        " worker.",
    )
    functions_paths: list[str] = Field(
        default_factory=list, description="Further folders that functions are imported from, as JSON."
    )
    functions_variables: list[str] = Field(
        default_factory=list, description="Environment variables that functions get, besides a few harmless ones."
    )
    functions_local: bool = Field(
        default=False,
        description="Run each function with the interpreter and from the folders that it was registered with. Only"
        " where whoever may submit work may also run programs, as on a laptop.",
    )
    urls_concurrency: int = Field(default=100, ge=1, description="URLs that one process fetches at a time.")
    urls_host_concurrency: int = Field(
        default=32, ge=0, description="Requests to one host at a time, over all processes; 0: no limit. Needs Valkey."
    )
    urls_host_per_second: float = Field(
        default=0.0, ge=0, description="Requests to one host per second, over all processes; 0: no limit."
    )
    urls_host_burst: int = Field(default=10, ge=1, description="Requests to one host that may exceed its rate.")
    urls_gateway: str | None = Field(
        default=None, description="URL of an HTTP proxy for all fetches. The proxy decides which addresses are reached."
    )
    urls_allow_private: bool = Field(
        default=False, description="Fetch private, loopback and other non-public addresses, too. For tests only."
    )
    urls_user_agent: str = Field(default="prismline/1.0", description="The `User-Agent` header of the requests.")
