"""S3 records of the posted alerts, and the claims that keep two notifiers from posting the same alert.

There is one object for each subject, changed only by conditional writes. A notifier makes a claim before it posts and
ends it afterwards. If the notifier dies in between, the claim expires and another notifier posts. The alert may then
be posted twice, which is better than not at all.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from urllib.parse import quote

from pydantic import ValidationError

from prismline_alerting.alerts import Alert
from prismline_alerting.decisions import PostClaim, PostedChange, SubjectRecord
from prismline_contracts.prefixes import POSTED_ALERTS_PREFIX
from prismline_runtime import Bucket


class Posts:
    """The record of all posts."""

    def __init__(self, bucket: Bucket, claim_seconds: float) -> None:
        self._bucket = bucket
        self._claim_for = timedelta(seconds=claim_seconds)

    def recall(self, subject: str) -> tuple[SubjectRecord, str]:
        """What is remembered about a subject, and its version for `claim`."""
        key = _key(subject)
        self._bucket.create(key, _body(SubjectRecord()))
        body, version = self._bucket.read_versioned(key)
        try:
            return SubjectRecord.model_validate_json(body), version
        except ValidationError:
            return SubjectRecord(), version  # unreadable: post once too often rather than not at all

    def claim(self, alert: Alert, memory: SubjectRecord, version: str, now: datetime) -> str | None:
        """Claim the right to post `alert`. Return the claim's token, or None if another notifier was faster."""
        claim = PostClaim(token=secrets.token_hex(16), until=now + self._claim_for)
        claimed = memory.model_copy(update={"claim": claim})
        return claim.token if self._bucket.replace(_key(alert.subject), _body(claimed), version) else None

    def end_claim(self, alert: Alert, token: str, *, posted: bool) -> bool:
        """End a claim. posted: whether the alert was posted. False if the claim expired and was taken over."""
        memory, version = self.recall(alert.subject)
        if memory.claim is None or memory.claim.token != token:
            return False
        told = PostedChange(state=alert.state, at=alert.at) if posted else memory.told
        return self._bucket.replace(_key(alert.subject), _body(SubjectRecord(told=told)), version)


def _key(subject: str) -> str:
    return f"{POSTED_ALERTS_PREFIX}{quote(subject)}.json"


def _body(memory: SubjectRecord) -> bytes:
    return memory.model_dump_json(exclude_none=True).encode()
