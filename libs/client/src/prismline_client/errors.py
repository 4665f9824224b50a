"""The error of the client."""

from __future__ import annotations

#: Statuses after which the same request may succeed.
RETRIED = frozenset({429, 502, 503, 504})


class ApiError(Exception):
    """The API refused a request, or cannot be reached. The text is a sentence for a person.

    status: the HTTP status of the answer. None if there is no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def unreachable(self) -> bool:
        """Whether the same request may succeed later, because it is not the request that is wrong."""
        return self.status is None or self.status >= 500 or self.status in RETRIED


def outdated(what: str, status: int | None = None) -> ApiError:
    """The error for an API that does not know what it was asked for. what: what it does instead."""
    return ApiError(f"The API is of an earlier release and {what}. Upgrade the service api.", status)
