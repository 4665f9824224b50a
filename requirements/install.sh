#!/usr/bin/env bash
# Install into the environment of an interpreter:
#
#   requirements/install.sh PYTHON [--into OTHER] LIST...            requirements files, with the hashes that they name
#   requirements/install.sh PYTHON [--into OTHER] --own FOLDER...    packages of this repository, editable, no index
#
# PYTHON has pip. With --into, it installs into the environment of the interpreter OTHER, which needs no pip.
#
# uv needs a quarter of pip's time. pip installs uv, with the hashes of uv.txt. pip does all the work where uv would
# not find the packages or cannot be installed, and tries again what uv could not do.
set -euo pipefail
lists=$(cd "$(dirname "$0")" && pwd)
python=$1 target=$1
shift
if [ "$1" = --into ]; then
  target=$2
  shift 2
fi

pip() { "$python" -m pip --disable-pip-version-check "$@"; }

# uv reads no setting of pip. An index that only adds to the default one makes no difference: the hashes name the files.
pip_alone_knows_the_index() {
  [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ] && pip config list | grep -Eq '\.(index-url|no-index)='
}

with_uv() {
  if pip_alone_knows_the_index; then return 1; fi
  pip install -q --require-hashes --no-deps --only-binary :all: -r "$lists/uv.txt" || return 1
  # pip compiles what it installs. uv has to be asked. Without bytecode each process compiles what it imports where
  # PYTHONDONTWRITEBYTECODE is set.
  "$python" -m uv pip install -q --python "$target" --compile-bytecode "$@"
}

# Whether gaussline's kernel can be compiled here.
has_compiler() { command -v "${CC:-cc}" > /dev/null || command -v gcc > /dev/null; }

# The wheel of gaussline that `make wheels` made for this version, if there is one.
wheel_of_gaussline() {
  local version
  version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$lists/../libs/gaussline/pyproject.toml")
  find "$lists/../dist" -name "prismline_gaussline-$version-*.whl" 2> /dev/null | head -n 1 || true
}

refuse_without_kernel() {
  echo "gaussline's kernel needs a C compiler and Python's headers (on Debian: apt-get install gcc libc6-dev" \
    "python3-dev), or the wheel of gaussline that \`make wheels\` made, in dist/." >&2
  exit 1
}

compiles=no
if [ "$1" = --own ]; then
  shift
  packages=()
  for folder in "$@"; do
    wheel=
    if [ "$(basename "$folder")" = gaussline ]; then
      if has_compiler; then compiles=yes; else wheel=$(wheel_of_gaussline); fi
      [ "$compiles" = yes ] || [ -n "$wheel" ] || refuse_without_kernel
    fi
    if [ -n "$wheel" ]; then packages+=("$wheel"); else packages+=(-e "$folder"); fi
  done
  set -- --no-deps --no-build-isolation --no-index "${packages[@]}"
elif [ "$(basename "$1")" = phspectra.txt ]; then
  # Published as a source distribution only. The build tools are those of runtime.txt.
  set -- --require-hashes --only-binary :all: --no-binary phspectra --no-build-isolation --requirement="$1"
else
  set -- --require-hashes --only-binary :all: "${@/#/--requirement=}"
fi

with_uv "$@" || pip --python "$target" install -q "$@"

# gaussline also installs where its kernel cannot be compiled.
if [ "$compiles" = yes ]; then
  "$target" -c 'import prismline_gaussline as g, sys; sys.exit(not g.kernel_available())' || refuse_without_kernel
fi
