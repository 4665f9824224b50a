# Valkey as Debian has it, for machines that cannot pull its own image: a stand-in for the tests.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE} AS packages
RUN apt-get update && apt-get install -y --no-install-recommends mmdebstrap
# Unpacked, not installed: the base has no business running trixie scripts.
RUN mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources) \
 && mmdebstrap --mode=root --variant=extract --include=valkey-server,valkey-tools trixie /root-of-valkey "$mirror" \
      --aptopt='Acquire::Check-Valid-Until "false"' \
 && ln -s usr/lib64 /root-of-valkey/lib64 && ln -s usr/lib /root-of-valkey/lib
FROM scratch
COPY --from=packages /root-of-valkey /
