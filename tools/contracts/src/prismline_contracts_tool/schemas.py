"""The JSON Schema (2020-12) of every contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from prismline_cli.printed import OUTPUT_MODELS
from prismline_contracts.captions import Caption, CaptionsManifest, CaptionWindow
from prismline_contracts.deadletters import DeadLetterRecord, RecoveryOperationItem
from prismline_contracts.envelope import Envelope
from prismline_contracts.items import ChunkItem, RepeatedErrorItem, RunItem, WorkflowStateItem
from prismline_contracts.jobs import (
    ApiKeyItem,
    BatchItem,
    ExportItem,
    IdempotencyItem,
    JobItem,
    JobRunItem,
    TenantItem,
    UploadItem,
    WebhookItem,
)
from prismline_contracts.manifest import SpectraManifest
from prismline_contracts.messages import MESSAGES
from prismline_contracts.objects import CubeGeometry
from prismline_contracts.tasks import ShardItem, TaskItem, UrlsManifest
from prismline_contracts.workloads import FunctionManifest, RegisteredWorkload
from prismline_contracts_tool.registry import REGISTRY

DIALECT = "https://json-schema.org/draft/2020-12/schema"

#: Folder, among the schemas, of those of what commands print.
OUTPUTS_FOLDER = "outputs"

#: Contracts that are not the `data` of a message, by schema name.
DOCUMENTS: dict[str, type[BaseModel]] = {
    "envelope.v1": Envelope,
    "manifest.v1": SpectraManifest,
    "captions_manifest.v1": CaptionsManifest,
    "urls_manifest.v1": UrlsManifest,
    "function_manifest.v1": FunctionManifest,
    "registered_workload.v1": RegisteredWorkload,
    "caption_window.v1": CaptionWindow,
    "caption.v1": Caption,
    "cube_geometry.v1": CubeGeometry,
    "run_item.v1": RunItem,
    "chunk_item.v1": ChunkItem,
    "task_item.v1": TaskItem,
    "shard_item.v1": ShardItem,
    "repeated_error_item.v1": RepeatedErrorItem,
    "job_item.v1": JobItem,
    "job_run_item.v1": JobRunItem,
    "batch_item.v1": BatchItem,
    "idempotency_item.v1": IdempotencyItem,
    "api_key_item.v1": ApiKeyItem,
    "tenant_item.v1": TenantItem,
    "upload_item.v1": UploadItem,
    "export_item.v1": ExportItem,
    "webhook_item.v1": WebhookItem,
    "workflow_state_item.v1": WorkflowStateItem,
    "dead_letter_record.v1": DeadLetterRecord,
    "recovery_operation_item.v1": RecoveryOperationItem,
}

#: The models of all contracts, by schema name.
MODELS: dict[str, type[BaseModel]] = DOCUMENTS | {
    message_type.removeprefix("prismline."): model for message_type, model in MESSAGES.items()
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of the contract `name`, e.g. `chunk.process.v1`."""
    return {"$schema": DIALECT, "$id": f"{name}.json"} | MODELS[name].model_json_schema()


def output_schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints, e.g. `deadletters_ls.v1`."""
    return {"$schema": DIALECT, "$id": f"{OUTPUTS_FOLDER}/{name}.json"} | OUTPUT_MODELS[name].model_json_schema()


def write_schemas(contracts: Path) -> None:
    """Write the schema of every contract into the registry of a checkout's folder `contracts`."""
    for name in MODELS:
        folder = contracts / REGISTRY / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schema.json").write_text(json.dumps(schema_of(name), indent=2) + "\n")
