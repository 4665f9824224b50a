"""The prefixes of the bucket. Every object of Prismline lies below one of them, and code builds keys from them.

The role of a service may use only the prefixes that its code uses. A test derives both and compares them, so a key
that begins with other text has no role that allows it.
"""

from __future__ import annotations

# ---- what users bring

#: Manifests. Creating an object here submits a job.
MANIFEST_PREFIX = "manifests/"
#: Cubes, noise and frames that `prismline submit` or a user puts there.
CUBES_PREFIX = "cubes/"
NOISE_PREFIX = "noise/"
FRAMES_PREFIX = "frames/"
#: Files that are submitted with a manifest of any workload.
SOURCES_PREFIX = "sources/"
#: Lists of URLs and cubes that are uploaded through the API.
UPLOADS_PREFIX = "uploads/"
#: Where a manifest may say that its sources are: cubes, noise, frames and lists.
SOURCE_PREFIXES = (CUBES_PREFIX, NOISE_PREFIX, FRAMES_PREFIX, SOURCES_PREFIX, UPLOADS_PREFIX)

# ---- what services write

#: Manifests of jobs that were submitted over HTTP, and the lists of their tasks.
JOBS_PREFIX = "jobs/"
#: The inputs of chunks, and what describes the run.
CHUNKS_PREFIX = "chunks/"
#: The Hive-partitioned dataset of all decompositions.
DECOMPOSITIONS_PREFIX = "decompositions/"
CAPTIONS_PREFIX = "captions/"
#: The bodies that tasks fetched.
RESULTS_PREFIX = "results/"
EXPORTS_PREFIX = "exports/"
#: The registrations of functions: for each function and code, its schemas and limits.
WORKLOADS_PREFIX = "workloads/"
#: The record of each alert that was posted.
POSTED_ALERTS_PREFIX = "alerts/posted/"
#: The whole archive of dead letters.
ARCHIVE_PREFIX = "dead-letter-archive/"
#: Records of all dead letters, by date.
DEAD_LETTERS_PREFIX = f"{ARCHIVE_PREFIX}sqs/"
#: Records that a recovery could not send back, or whose chunk failed again, by date.
FAILED_DEAD_LETTERS_PREFIX = f"{ARCHIVE_PREFIX}failed-sqs/"
#: Records whose messages a recovery has sent and whose chunks have not ended yet, by operation.
RECOVERING_PREFIX = f"{ARCHIVE_PREFIX}recovering/"
