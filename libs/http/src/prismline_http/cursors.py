"""Cursors: the position at which the next page begins. They are opaque to clients and signed against forgery. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Any

#: Bytes of the signature.
SIGNATURE_BYTES = 16
#: Longest cursor, in characters.
MAX_CURSOR_CHARS = 2048


class ForgedCursorError(ValueError):
    """The cursor was not made by this service, or for another list."""


def seal(secret: bytes, subject: str, position: Any) -> str:
    """The cursor for `position` (a JSON value) in the list `subject`."""
    payload = json.dumps(position, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_sign(secret, subject, payload) + payload).rstrip(b"=").decode()


def unseal(secret: bytes, subject: str, cursor: str) -> Any:
    """The position in a cursor of the list `subject`. Raises ForgedCursorError."""
    if len(cursor) > MAX_CURSOR_CHARS or not cursor.isascii():
        raise ForgedCursorError("the cursor is not one of ours")
    try:
        sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ForgedCursorError("the cursor is not one of ours") from error
    signature, payload = sealed[:SIGNATURE_BYTES], sealed[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _sign(secret, subject, payload)):
        raise ForgedCursorError("the cursor is not one of ours, or it belongs to another list")
    return json.loads(payload)


def _sign(secret: bytes, subject: str, payload: bytes) -> bytes:
    return hmac.digest(secret, subject.encode() + b"\0" + payload, hashlib.sha256)[:SIGNATURE_BYTES]
