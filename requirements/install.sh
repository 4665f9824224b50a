#!/usr/bin/env bash
# Install into the environment of an interpreter:
#
#   requirements/install.sh PYTHON LIST...            requirements files, with the hashes that they name
#   requirements/install.sh PYTHON --own FOLDER...    packages of this repository, editable, without an index
#
# uv needs a quarter of pip's time. pip installs uv, with the hashes of uv.txt. pip does all the work where uv would
# not find the packages or cannot be installed, and tries again what uv could not do.
set -euo pipefail
lists=$(cd "$(dirname "$0")" && pwd)
python=$1
shift

pip() { "$python" -m pip "$1" -q --disable-pip-version-check "${@:2}"; }

# uv reads no setting of pip. An index that only adds to the default one makes no difference: the hashes name the files.
pip_alone_knows_the_index() {
  [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ] && "$python" -m pip config list | grep -Eq '\.(index-url|no-index)='
}

with_uv() {
  if pip_alone_knows_the_index; then return 1; fi
  pip install --require-hashes --no-deps --only-binary :all: -r "$lists/uv.txt" || return 1
  # pip compiles what it installs. uv has to be asked. Without bytecode each process compiles what it imports where
  # PYTHONDONTWRITEBYTECODE is set.
  "$python" -m uv pip install -q --python "$python" --compile-bytecode "$@"
}

if [ "$1" = --own ]; then
  shift
  editable=()
  for folder in "$@"; do editable+=(-e "$folder"); done
  set -- --no-deps --no-build-isolation --no-index "${editable[@]}"
else
  set -- --require-hashes "${@/#/--requirement=}"
fi

with_uv "$@" || pip install "$@"
