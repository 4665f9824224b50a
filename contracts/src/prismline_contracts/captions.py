"""The `captions` workload: a model on a GPU writes one caption for each window of frames of a recording."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from prismline_contracts.base import MOST_INDEX, Contract, Count, Key, Name, RunId, Submitted, Survey, Timestamp
from prismline_contracts.manifest import Manifest, Params
from prismline_contracts.prefixes import CAPTIONS_PREFIX

#: Most frames in a window. One request to the model carries one window.
MAX_FRAMES = 256


class CaptionParams(Params):
    """Parameters of a captions run: what the model is asked."""

    prompt: Annotated[str, Field(min_length=1, max_length=4000)] = "Describe what happens in these frames."
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 256


class GivenCaptionParams(Submitted, CaptionParams, extra="forbid"):
    """Parameters of a captions run as a person writes them."""


class FrameWindow(Contract):
    """Consecutive frames of a recording. One window is one chunk."""

    window_index: Count
    frame_count: Annotated[int, Field(ge=1, le=MAX_FRAMES)]
    #: Keys of the frames' images, PNG or JPEG, in order.
    frames: Annotated[list[Key], Field(min_length=1, max_length=MAX_FRAMES)]

    @model_validator(mode="after")
    def _counts_its_frames(self) -> Self:
        if self.frame_count != len(self.frames):
            raise ValueError(f"frame_count is {self.frame_count}, but there are {len(self.frames)} frames")
        return self


class GivenFrameWindow(FrameWindow):
    """A window as a client writes it. Its number is at most `MOST_INDEX`, which the schema does not show."""

    @field_validator("window_index")
    @classmethod
    def _is_an_index(cls, value: int) -> int:
        if value > MOST_INDEX:
            raise ValueError(f"window_index is at most {MOST_INDEX}")
        return value


class CaptionsManifest(Manifest):
    """The manifest of the `captions` workload: the windows of one session."""

    workload: Literal["captions"]
    survey: Survey = Field(alias="session_id")
    user_id: Name
    windows: Annotated[list[GivenFrameWindow], Field(min_length=1, max_length=100_000)]
    params: GivenCaptionParams = GivenCaptionParams()

    @model_validator(mode="after")
    def _has_each_window_once(self) -> Self:
        indices = [window.window_index for window in self.windows]
        if len(set(indices)) != len(indices):
            raise ValueError("two windows have the same window_index")
        return self

    @property
    def session_id(self) -> str:
        """The id of the recording. The ledger stores it as the run's survey."""
        return self.survey


class CaptionWindow(FrameWindow):
    """The input of a chunk: one window, with its session and user."""

    session_id: Survey
    user_id: Name


class Caption(Contract):
    """The output of a chunk: the model's caption of a window."""

    run_id: RunId
    session_id: Survey
    user_id: Name
    window_index: Count
    frame_count: Annotated[int, Field(ge=1)]
    caption: Annotated[str, Field(min_length=1)]
    model: Name
    created_at: Timestamp
    #: Milliseconds spent reading the frames.
    read_ms: Count
    #: Milliseconds until the model answered, retries included.
    request_ms: Count


def caption_key(session_id: str, run_id: str, chunk_id: str) -> str:
    """S3 key of a window's caption."""
    return f"{CAPTIONS_PREFIX}session={session_id}/run={run_id}/{chunk_id}.json"
