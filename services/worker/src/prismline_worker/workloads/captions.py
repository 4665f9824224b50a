"""Captions: a vision model on a GPU describes what happens in a window of frames.

The GPU does not always run. Without a GPU, or without a model that answers on it, the chunk waits in the dead-letter
queue. It stays PENDING and uses up no attempt. A chunk is COMPLETED only with a caption of the model.
"""

from __future__ import annotations

import time
from typing import Self

import httpx
from pydantic import ValidationError

from prismline_contracts.base import timestamp
from prismline_contracts.captions import Caption, CaptionParams, CaptionWindow, caption_key
from prismline_contracts.commands import ChunkProcess
from prismline_runtime import Bucket, Instances, Message, PermanentError, clients, describe_invalid
from prismline_worker.caption_client import CaptionClient
from prismline_worker.dependencies import Dependencies
from prismline_worker.gpu import Gpu, GpuUnavailableError
from prismline_worker.model_endpoint import ModelEndpoint
from prismline_worker.params import read_params
from prismline_worker.progress import Progress
from prismline_worker.workload import Outcome

#: Most bytes of all frames of a window. They are held in memory and sent in one request.
MAX_WINDOW_BYTES = 64 * 2**20


class CaptionsWorkload:
    """The `captions` workload. Its input is a window of frames, its output a caption."""

    name = "captions"

    def __init__(self, deps: Dependencies, endpoint: ModelEndpoint, client: CaptionClient) -> None:
        self._deps = deps
        self._endpoint = endpoint
        self._client = client

    @classmethod
    def connect(cls, deps: Dependencies) -> Self:
        """Make the workload with the GPU and the model endpoint of the settings."""
        settings = deps.settings
        api_key = settings.caption_api_key
        client = CaptionClient(
            httpx.Client(),
            resource=settings.gpu_resource,
            model=settings.caption_model,
            api_key=api_key.get_secret_value() if api_key else None,
            timeout_seconds=settings.caption_timeout_seconds,
            tries=settings.caption_tries,
        )
        gpu = Gpu(Instances(clients.ec2(), settings.environment), settings.gpu_resource)
        return cls(deps, ModelEndpoint(gpu, client, base_url=settings.caption_base_url), client)

    def require(self, command: ChunkProcess) -> None:
        """Raise ResourceUnavailableError if there is no GPU or its model does not answer."""
        try:
            self._endpoint.find()
        except GpuUnavailableError:
            segment_id = f"{command.run_id}/{command.chunk_id}"
            self._deps.logger.info("gpu_unavailable_raised", extra={"segment_id": segment_id})
            raise

    def process(self, command: ChunkProcess, message: Message, progress: Progress) -> Outcome:  # noqa: ARG002
        """Caption the chunk's window. If two workers caption it, the caption that is written first counts."""
        bucket = self._deps.open_bucket(command.bucket)
        params, window = read_params(CaptionParams, command.params), _window(bucket, command.chunk_key)
        key = caption_key(window.session_id, command.run_id, command.chunk_id)
        began = time.monotonic()
        frames = _frames(bucket, window)
        read = time.monotonic()
        answer = self._client.caption(
            self._endpoint.find(),
            frames,
            params.prompt,
            params.max_tokens,
            deadline=message.delivery.deadline(self._deps.settings.deadline_margin_seconds),
        )
        caption = Caption(
            run_id=command.run_id,
            session_id=window.session_id,
            user_id=window.user_id,
            window_index=window.window_index,
            frame_count=window.frame_count,
            caption=answer.caption,
            model=answer.model,
            created_at=timestamp(),
            read_ms=round((read - began) * 1000),
            request_ms=round((time.monotonic() - read) * 1000),
        )
        body = caption.model_dump_json().encode()
        if not bucket.create(key, body):
            caption, body = _caption(bucket, key)
        return Outcome(key, n_bytes=len(body), summary=caption.caption)


WORKLOAD = CaptionsWorkload


def _window(bucket: Bucket, key: str) -> CaptionWindow:
    try:
        return CaptionWindow.model_validate_json(bucket.read(key))
    except ValidationError as error:
        raise PermanentError(f"The window {key} is invalid: {describe_invalid(error)}.") from error


def _caption(bucket: Bucket, key: str) -> tuple[Caption, bytes]:
    """The caption that another attempt has written, and the bytes of its object."""
    body = bucket.read(key)
    try:
        return Caption.model_validate_json(body), body
    except ValidationError as error:
        raise PermanentError(f"The caption {key} is invalid: {describe_invalid(error)}.") from error


def _frames(bucket: Bucket, window: CaptionWindow) -> list[bytes]:
    frames, size = [], 0
    for key in window.frames:
        frames.append(bucket.read(key, most=MAX_WINDOW_BYTES))
        size += len(frames[-1])
        if size > MAX_WINDOW_BYTES:
            raise PermanentError(f"The window's frames have more than {MAX_WINDOW_BYTES >> 20} MiB; make it shorter.")
    return frames
