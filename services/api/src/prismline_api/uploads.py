"""Uploads: presigned PUTs whose signature binds the key, the length, the type and the format of the file.

An uploaded file waits for a job with a tag, by which a lifecycle rule of the bucket expires it. The first job that
takes the upload removes the tag. The item of an upload names the jobs that have taken it, so that the file is deleted
with the last of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

from botocore.exceptions import ClientError

from prismline_api.dependencies import UPLOAD_SECONDS, Dependencies
from prismline_api.manifests import CONTENT_TYPES, request_hash, upload_metadata
from prismline_api.models import Upload, UploadRequest
from prismline_contracts.base import derived_id, timestamp
from prismline_contracts.jobs import UploadItem, upload_item_key, upload_key
from prismline_http.auth import Caller
from prismline_http.problems import invalid
from prismline_runtime import aws_errors, error_code

#: The tag of a file that waits for a job. The lifecycle of the bucket (platform/template.yaml) has the same one.
WAITING_TAG = {"prismline-upload": "waiting"}
#: How long an uploaded file may wait for a job. The bucket deletes it a day later at the earliest, because a file whose
#: expiry has begun is deleted even if its tag is removed then.
LONGEST_WAIT = timedelta(days=6)
#: How long the item of an upload that no job takes is kept, in seconds: 30 days.
ITEM_SECONDS = 30 * 86_400


def begin_upload(request: UploadRequest, caller: Caller, key: str | None, deps: Dependencies) -> Upload:
    """The URL and the headers of an upload. Requests with the same key get the same upload, whose file is sent once.

    Raises ProblemError (422) if the file is too long.
    """
    if request.size_bytes > deps.settings.max_upload_bytes:
        raise invalid(
            f"An upload has at most {deps.settings.max_upload_bytes} bytes. Divide the list into several jobs."
        )
    upload_id = UUID(derived_id(caller.tenant, "upload", key, request_hash(request))).hex if key else uuid4().hex
    item_key, moment = upload_item_key(caller.tenant, upload_id), deps.clock()
    deps.store.create_upload(UploadItem(PK=item_key["PK"], expires_at=int(moment.timestamp()) + ITEM_SECONDS))
    content_type, metadata = CONTENT_TYPES[request.format], upload_metadata(request.format, gzip=request.gzip)
    tag = urlencode(WAITING_TAG)
    url = deps.signer.generate_presigned_url(
        "put_object",
        Params={
            "Bucket": deps.bucket.name,
            "Key": upload_key(caller.tenant, upload_id),
            "ContentLength": request.size_bytes,
            "ContentType": content_type,
            "Metadata": metadata,
            "Tagging": tag,
            "IfNoneMatch": "*",  # a file that replaced this one would have the tag again
        },
        ExpiresIn=UPLOAD_SECONDS,
    )
    headers = {
        "Content-Length": str(request.size_bytes),
        "Content-Type": content_type,
        "If-None-Match": "*",
        "x-amz-tagging": tag,
    }
    return Upload(
        upload_id=upload_id,
        url=url,
        headers=headers | {f"x-amz-meta-{name}": value for name, value in metadata.items()},
        expires_at=timestamp(moment + timedelta(seconds=UPLOAD_SECONDS)),
    )


def find_upload(tenant: str, upload_id: str, deps: Dependencies) -> Any:
    """The answer of S3's `HeadObject` for an upload that a job may take. Raises ProblemError (422)."""
    head, item = deps.head(upload_key(tenant, upload_id)), deps.store.upload(tenant, upload_id)
    if head is None or not may_be_taken(item, head["LastModified"], deps.clock()):
        raise invalid(
            "There is no such upload. Send the file to the URL that POST /v1/uploads gave, then submit within"
            f" {LONGEST_WAIT.days} days."
        )
    return head


def may_be_taken(item: UploadItem | None, sent_at: datetime, moment: datetime) -> bool:
    """Whether a job may take an upload. item: None for an upload of an earlier release, which nothing deletes."""
    if item is None:
        return True
    return item.deleted_at is None and (item.job_ids is not None or moment - sent_at < LONGEST_WAIT)


def keep_upload(tenant: str, upload_id: str, deps: Dependencies) -> None:
    """Keep an upload for a job that takes it: the bucket does not expire it any more."""
    key = upload_key(tenant, upload_id)
    with aws_errors(f"remove the tag of s3://{deps.bucket.name}/{key}"):
        try:
            deps.s3.put_object_tagging(Bucket=deps.bucket.name, Key=key, Tagging={"TagSet": []})
        except ClientError as error:
            if error_code(error) != "NoSuchKey":  # if it was just deleted, the job's transaction fails
                raise
