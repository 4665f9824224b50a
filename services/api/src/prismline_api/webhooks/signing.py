"""Signs a post as the Standard Webhooks specification says. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks, "Verifying webhook authenticity".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime

#: The beginning of a secret. Base64 follows.
SECRET_PREFIX = "whsec_"


def signed_headers(secret: str, event_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a post: the event's id, the time in Unix seconds, and the HMAC-SHA256 over both and the body."""
    moment = str(int(now.timestamp()))
    encoded = secret.removeprefix(SECRET_PREFIX)
    key = base64.b64decode(encoded + "=" * (-len(encoded) % 4))
    digest = hmac.new(key, f"{event_id}.{moment}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        "content-type": "application/json",
    }
