"""The archive of dead letters: the folders of its days, and its records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import ValidationError

from prismline_contracts.deadletters import DeadLetterRecord
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX
from prismline_runtime import Bucket, PermanentError, aws_errors, describe_invalid

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Prefixes of the folders of days: records that no recovery has taken, and records that a recovery could not send.
ROOTS = (DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX)


class Archive:
    """Lists and reads records. Raises UnavailableError if S3 does not answer."""

    def __init__(self, s3: S3Client, bucket: Bucket) -> None:
        self._pages = s3.get_paginator("list_objects_v2")
        self._bucket = bucket

    def folders(self) -> list[str]:
        """The folders of days, the newest day first. A day may have one for each root."""
        with aws_errors("list the days of the archive of dead letters"):
            folders = [
                entry["Prefix"]
                for root in ROOTS
                for page in self._pages.paginate(Bucket=self._bucket.name, Prefix=root, Delimiter="/")
                for entry in page.get("CommonPrefixes", [])
            ]
        return sorted(folders, key=day_of, reverse=True)

    def entries(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        """The keys below a prefix with the times of their last changes, in no useful order: the keys are random."""
        with aws_errors("list the archive of dead letters"):
            for page in self._pages.paginate(Bucket=self._bucket.name, Prefix=prefix):
                yield from ((entry["Key"], entry["LastModified"]) for entry in page.get("Contents", []))

    def read(self, key: str) -> DeadLetterRecord | None:
        """A record. None if it does not exist: a recovery may remove it at any time. Of an object that is not a record,
        one whose error says so.

        Unpaired surrogates, which the archive keeps and no answer can hold, are replaced by question marks.
        """
        try:
            content = self._bucket.read(key)
        except PermanentError:
            return None
        try:
            text = json.dumps(json.loads(content), ensure_ascii=False, allow_nan=False)
            return DeadLetterRecord.model_validate_json(text.encode(errors="replace"))
        except (ValueError, RecursionError) as error:
            why = describe_invalid(error) if isinstance(error, ValidationError) else str(error)
        return DeadLetterRecord(
            body=content.decode(errors="replace"), error=f"The archived object is not a record: {why}."
        )


def day_of(name: str) -> str:
    """The day of a folder, or of a key in it."""
    return name.rpartition("/")[0].rpartition("/")[2]
