"""The dependencies of the api service: clients and settings, made once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import boto3
from aws_lambda_powertools import Logger
from botocore.config import Config
from botocore.exceptions import ClientError

from prismline_api.all_runs import AllRuns
from prismline_api.archive import Archive
from prismline_api.archive_counts import ArchiveCounts
from prismline_api.cells.following import Feeds
from prismline_api.deployment.alerts import Alerts
from prismline_api.deployment.system import System, SystemClients
from prismline_api.ownership import Sources, sources_of
from prismline_api.recent import Recent
from prismline_api.settings import ApiSettings
from prismline_api.store import JobStore
from prismline_contracts.base import now
from prismline_coordination import Cache, CoordinationServer, RateLimit
from prismline_http.access import Access
from prismline_http.auth import Caller, Keys
from prismline_http.cursors import ForgedCursorError, seal, unseal
from prismline_http.key_store import KeyStore
from prismline_http.peers import is_own_account
from prismline_http.problems import ProblemError
from prismline_ledger import Ledger, Operations
from prismline_runtime import Bucket, Table, Transport, aws_errors, clients, download_of, error_code, service_logger

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from prismline_api.cells.watching import Watched
    from prismline_api.maps.building import Maps
    from prismline_api.maps.chunks import ChunkIndex
    from prismline_api.maps.map_cache import MapCache
    from prismline_api.maps.spectra import SpectrumReader

#: Name of the service in logs and as the source of messages.
SERVICE = "api"
#: Only signature version 4 binds the headers of an upload.
S3_CONFIG = Config(signature_version="s3v4")
#: How long a link to a result or an export is valid, in seconds: 24 h. Links that a role signs end with its session.
LINK_SECONDS = 86_400
#: How long the presigned URL of an upload is valid, in seconds.
UPLOAD_SECONDS = 3600


@dataclass(frozen=True)
class Dependencies:
    """What the operations of the api use."""

    settings: ApiSettings
    store: JobStore
    key_store: KeyStore
    ledger: Ledger
    operations: Operations
    states: Table
    bucket: Bucket
    s3: S3Client
    #: Signs links. Its endpoint is the address at which callers reach S3.
    signer: S3Client
    transport: Transport
    alerts: Alerts
    system: System
    logger: Logger
    #: Valkey. Without it, each instance limits rates by itself and caches nothing.
    limit: RateLimit
    cache: Cache
    #: Whether the workers have a Valkey server, which counts the slots of runs with `max_concurrency`.
    with_slots: bool = True
    clock: Callable[[], datetime] = now
    #: Whether a connection from this address belongs to the account that runs this process.
    is_own_account: Callable[[tuple[str, int] | None], bool] = is_own_account

    @cached_property
    def _cursor_secret(self) -> bytes:
        return self.key_store.secret("cursors")

    @cached_property
    def all_runs(self) -> AllRuns:
        """The runs of all tenants."""
        return AllRuns(self.states)

    @cached_property
    def archive(self) -> Archive:
        """The archive of dead letters."""
        return Archive(self.s3, self.bucket)

    @cached_property
    def archive_counts(self) -> ArchiveCounts:
        """Counts the dead letters of each run."""
        return ArchiveCounts(self.archive)

    @cached_property
    def cells(self) -> Watched:
        """The cells of the runs that clients view."""
        from prismline_api.cells.watching import Watched  # noqa: PLC0415  it loads NumPy, which few requests need

        return Watched(self.ledger)

    @cached_property
    def feeds(self) -> Feeds:
        """The runs that streams follow."""
        return Feeds(self.settings.event_streams)

    @cached_property
    def recent(self) -> Recent:
        """Answers that the requests of a second share."""
        return Recent()

    @cached_property
    def access(self) -> Access:
        """Finds the callers of requests."""
        settings = self.settings
        keys = Keys(self.key_store, settings.key_cache_seconds, self.limit)
        return Access(self.key_store, keys, self.limit, settings.requests_per_second, settings.request_burst)

    # Maps need the libraries for Parquet and FITS. A process loads them with the first request for a map.

    @cached_property
    def chunk_index(self) -> ChunkIndex:
        """Finds the chunks of runs that have maps."""
        from prismline_api.maps.chunks import ChunkIndex  # noqa: PLC0415

        return ChunkIndex(self.ledger, self.s3, self.bucket)

    @cached_property
    def maps(self) -> Maps:
        """Builds the tiles of maps."""
        from prismline_api.maps.building import Maps  # noqa: PLC0415

        return Maps(self.bucket, self.chunk_index, self._maps_memory, self.logger)

    @cached_property
    def spectra(self) -> SpectrumReader:
        """Shows single spectra."""
        from prismline_api.maps.spectra import SpectrumReader  # noqa: PLC0415

        return SpectrumReader(self.ledger, self.bucket, self._open_bucket, self.maps, self._maps_memory)

    @cached_property
    def _maps_memory(self) -> MapCache:
        from prismline_api.maps.map_cache import MapCache  # noqa: PLC0415

        return MapCache(self.settings.maps_memory_bytes)

    def _open_bucket(self, name: str) -> Bucket:
        return Bucket(self.s3, name)

    def seal(self, subject: str, position: Any) -> str | None:
        """The cursor for a position in a list. None at the end of the list."""
        return None if position is None else seal(self._cursor_secret, subject, position)

    def unseal(self, subject: str, cursor: str | None) -> Any:
        """The position in a cursor of the list. Raises ProblemError (400) if this service did not make the cursor."""
        if cursor is None:
            return None
        try:
            return unseal(self._cursor_secret, subject, cursor)
        except ForgedCursorError as error:
            raise ProblemError(
                400, "bad-cursor", f"The list cannot continue: {error}. Use next_cursor of the same list, unchanged."
            ) from error

    def may_see(self, caller: Caller, run_id: str | None) -> bool:
        """Whether the caller may see what belongs to a run. None: it belongs to no run."""
        return caller.sees_all or (run_id is not None and self.store.run(caller.tenant, run_id) is not None)

    def sources(self, tenant: str) -> Sources:
        """The keys that the jobs of the tenant may name."""
        settings = self.settings
        tenants = self.key_store.tenants() if tenant == settings.default_tenant else ()
        return sources_of(tenant, settings.source_prefixes, default_tenant=settings.default_tenant, tenants=tenants)

    def link(self, key: str, content_type: str | None = None) -> str:
        """A link with which anybody can download the object for `LINK_SECONDS`.

        content_type: the type that a site gave to the object. A browser never runs what the link returns, whatever type
        the object was stored with.
        """
        download = download_of(content_type)
        arguments = {
            "Bucket": self.bucket.name,
            "Key": key,
            "ResponseContentType": download.content_type,
            "ResponseContentDisposition": download.content_disposition,
        }
        return self.signer.generate_presigned_url("get_object", Params=arguments, ExpiresIn=LINK_SECONDS)

    def head(self, key: str) -> Any | None:
        """The answer of S3's `HeadObject`. None if there is no such object."""
        with aws_errors(f"read the metadata of s3://{self.bucket.name}/{key}"):
            try:
                return self.s3.head_object(Bucket=self.bucket.name, Key=key)
            except ClientError as error:
                if error_code(error) in {"404", "NoSuchKey", "NotFound"}:
                    return None
                raise

    @classmethod
    def from_environment(cls) -> Self:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = ApiSettings()
        dynamodb = clients.dynamodb()
        s3 = clients.s3()
        ssm, cloudwatch = clients.ssm(), boto3.client("cloudwatch", config=clients.CONFIG)
        valkey = CoordinationServer.from_environment()
        return cls(
            settings=settings,
            store=JobStore(dynamodb, settings.jobs_table),
            key_store=KeyStore(dynamodb, settings.jobs_table),
            ledger=Ledger(dynamodb, settings.runs_table),
            operations=Operations(dynamodb, settings.runs_table),
            states=Table(dynamodb, settings.workflow_state_table),
            bucket=Bucket(s3, settings.bucket),
            s3=s3,
            signer=boto3.client(
                "s3",
                config=clients.CONFIG.merge(S3_CONFIG),
                endpoint_url=settings.links_endpoint or s3.meta.endpoint_url,
            ),
            transport=Transport.connect(settings.environment, SERVICE),
            alerts=Alerts(ssm, cloudwatch, settings.environment),
            system=System(
                SystemClients(clients.sqs(), cloudwatch, ssm),
                settings.environment,
                age_namespace=settings.queue_age_namespace,
                process_reports=settings.process_reports,
            ),
            logger=service_logger(SERVICE),
            limit=RateLimit(valkey),
            cache=Cache(valkey),
            with_slots=valkey.exists,
        )
