"""Uploads: presigned PUTs whose signature binds the key, the length, the type and the format of the file."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from prismline_api.auth import Caller
from prismline_api.dependencies import UPLOAD_SECONDS, Dependencies
from prismline_api.manifests import CONTENT_TYPES, upload_metadata
from prismline_api.models import Upload, UploadRequest
from prismline_api.problems import invalid
from prismline_contracts import timestamp, upload_key


def begin_upload(request: UploadRequest, caller: Caller, deps: Dependencies) -> Upload:
    """The URL and the headers of an upload. Raises ProblemError (422) if the file is too long."""
    if request.size_bytes > deps.settings.max_upload_bytes:
        raise invalid(
            f"An upload has at most {deps.settings.max_upload_bytes} bytes. Divide the list into several jobs."
        )
    upload_id = uuid4().hex
    content_type, metadata = CONTENT_TYPES[request.format], upload_metadata(request.format, gzip=request.gzip)
    url = deps.signer.generate_presigned_url(
        "put_object",
        Params={
            "Bucket": deps.bucket.name,
            "Key": upload_key(caller.tenant, upload_id),
            "ContentLength": request.size_bytes,
            "ContentType": content_type,
            "Metadata": metadata,
        },
        ExpiresIn=UPLOAD_SECONDS,
    )
    headers = {"Content-Length": str(request.size_bytes), "Content-Type": content_type}
    return Upload(
        upload_id=upload_id,
        url=url,
        headers=headers | {f"x-amz-meta-{name}": value for name, value in metadata.items()},
        expires_at=timestamp(deps.clock() + timedelta(seconds=UPLOAD_SECONDS)),
    )
