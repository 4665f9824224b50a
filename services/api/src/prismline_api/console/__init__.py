"""The console: pages in the browser that show every run, every chunk and every dead letter.

The pages contain only a title, the navigation and empty containers. Their scripts fetch everything else from `/v1`, as
any client does.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from prismline_api.console.map_pages import router as map_pages
from prismline_api.console.pages import SignInRequiredError, no_page, router, to_login
from prismline_api.dependencies import Dependencies
from prismline_http.headers import SecurityHeaders

#: Style sheets, scripts and vendored files.
STATIC = Path(__file__).parent / "static"


def install(app: FastAPI, deps: Dependencies) -> None:
    """Make `app` serve the console, and protect all its answers with security headers."""
    app.include_router(router)
    app.include_router(map_pages)
    app.add_exception_handler(SignInRequiredError, to_login)
    app.mount("/console/static", StaticFiles(directory=STATIC), name="console-static")
    app.include_router(no_page)
    app.add_middleware(SecurityHeaders, pages="/console", upload_origin=upload_origin(deps))


def upload_origin(deps: Dependencies) -> str:
    """Scheme and host of the presigned URLs to which the page uploads files."""
    url = deps.signer.generate_presigned_url("put_object", Params={"Bucket": deps.bucket.name, "Key": "-"})
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc}"
