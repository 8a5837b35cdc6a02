#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build needs and is not there yet:
#  - Debian packages, with apt-get;
#  - oneDNN, onnx.proto and, with --cuda, cuDNN's C++ headers and CUDA, from pinned PyPI
#    wheels (scripts/wheels.lock) into .deps/ in the source tree.
# Running it again costs nothing when nothing is missing.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: scripts/deps.sh [--cuda] [--list]

  --cuda   what the CUDA module needs, too: cuDNN's C++ headers, and where there is
           no CUDA toolkit with cuDNN the libraries and headers (900 MB of wheels)
  --list   only print the Debian packages that the build needs
TEXT
}

readonly packages=(
  # compiling
  g++ cmake ninja-build ccache pkg-config
  # the libraries
  libfmt-dev nlohmann-json3-dev libcli11-dev
  libprotobuf-dev protobuf-compiler
  libjpeg-dev libspng-dev libzip-dev zlib1g-dev
  # tests and benchmarks
  libgtest-dev libbenchmark-dev
  # fetching the wheels, drawing the quick start's pictures
  ca-certificates python3 python3-pip python3-venv python3-numpy python3-pil
)

cuda=0
for argument in "$@"; do
  case $argument in
    --cuda) cuda=1 ;;
    --list)
      printf '%s\n' "${packages[@]}"
      exit 0
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) refuse_usage "unknown argument '$argument'" ;;
  esac
done

# --- Debian packages ---------------------------------------------------------

missing_packages() {
  local name
  for name in "${packages[@]}"; do
    # shellcheck disable=SC2016  # dpkg-query's own placeholder
    if [[ $(dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | head -n 1) != installed ]]; then
      echo "$name"
    fi
  done
}

install_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    note "No apt-get here. The build needs these, by their Debian names: ${packages[*]}"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    return
  fi
  say "Installing ${#missing[@]} Debian package(s): ${missing[*]}"
  local -a as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null ||
      die "not root and no sudo here. As root, run: apt-get install --no-install-recommends ${missing[*]}"
    as_root=(sudo)
  fi
  local -a quiet=(-qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update "${quiet[@]}" ||
    note "apt-get update failed; trying with the package lists that are here"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${quiet[@]}" "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

# --- PyPI wheels -------------------------------------------------------------

readonly deps=$root/.deps
readonly lock=$root/scripts/wheels.lock

# pinned NAME: "1.2.3 sha256...", from wheels.lock
pinned() {
  sed -n "s/^$1==\([^ ]*\) *--hash=sha256:\([0-9a-f]*\).*/\1 \2/p" "$lock"
}

# present FOLDER NAME...: whether .deps/FOLDER was unpacked from the pinned wheels
present() {
  local folder=$1 name
  shift
  [[ -f $deps/$folder/.wheels ]] && cmp -s "$deps/$folder/.wheels" <(for name in "$@"; do echo "$name $(pinned "$name")"; done)
}

# fetch FOLDER NAME...: the wheels of these names, unpacked into a new $work/FOLDER
fetch() {
  local folder=$1 name version digest file
  shift
  mkdir -p "$work/wheels" "$work/$folder"
  for name in "$@"; do
    read -r version digest < <(pinned "$name") || die "$name is not in $lock"
    note "$name $version"
    # One build of each wheel serves every Python, since no Python code of it is used.
    "$python" -m pip --disable-pip-version-check download --quiet --no-deps --no-cache-dir --require-hashes \
      --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 --abi none \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
      --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64 --platform any \
      --dest "$work/wheels" --requirement <(grep "^$name==" "$lock") ||
      die "could not download $name $version from PyPI: check the network and pip's settings (python3 -m pip config list)"
    file=("$work/wheels/${name//-/_}"-*.whl)
    echo "$digest  ${file[0]}" | sha256sum --check --quiet || die "$name $version: the file is not the pinned one"
    "$python" -m zipfile -e "${file[0]}" "$work/$folder/$name"
    echo "$name $version $digest" >>"$work/$folder/.wheels"
  done
}

# publish FOLDER TREE: $work/TREE becomes .deps/FOLDER in one rename
publish() {
  local folder=$1 tree=$work/$2
  mv "$work/$folder/.wheels" "$tree/.wheels"
  rm -rf "$work/old-$folder"
  if [[ -e $deps/$folder ]]; then
    mv "$deps/$folder" "$work/old-$folder"
  fi
  mv "$tree" "$deps/$folder"
}

fetch_onednn() {
  fetch onednn onednn-devel-cpu-gomp onednn-cpu-gomp
  local tree=$work/onednn-tree data
  mkdir "$tree"
  for data in "$work"/onednn/*/*.data/data; do
    cp -a "$data/." "$tree/"
  done
  # The wheel holds the library three times over, since wheels know no links.
  local library
  library=$(basename "$(ls "$tree"/lib/libdnnl.so.3.*)")
  ln -sf "$library" "$tree/lib/libdnnl.so.3"
  ln -sf libdnnl.so.3 "$tree/lib/libdnnl.so"
  chmod 755 "$tree/lib/$library"
  publish onednn onednn-tree
}

fetch_onnx() {
  fetch onnx onnx
  mkdir "$work/onnx-tree"
  cp "$work/onnx/onnx/onnx/onnx.proto" "$work/onnx-tree/"
  cp "$work"/onnx/onnx/onnx-*.dist-info/licenses/LICENSE "$work/onnx-tree/" 2>/dev/null || true
  publish onnx onnx-tree
}

fetch_cudnn_frontend() {
  fetch cudnn_frontend nvidia-cudnn-frontend
  local header
  header=$(find "$work/cudnn_frontend" -name cudnn_frontend.h -path '*/include/*' -print -quit)
  [[ -n $header ]] || die "no cudnn_frontend.h in the nvidia-cudnn-frontend wheel"
  mkdir "$work/cudnn-tree"
  cp -a "$(dirname "$header")" "$work/cudnn-tree/include"
  publish cudnn_frontend cudnn-tree
}

readonly cuda_wheels=(nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl nvidia-cuda-nvrtc nvidia-cublas nvidia-cudnn-cu13)

# toolkit_here: whether this machine has CUDA's and cuDNN's headers already
toolkit_here() {
  local cuda_home=${CUDA_PATH:-/usr/local/cuda}
  command -v nvcc >/dev/null || [[ -e $cuda_home/include/cuda_runtime_api.h ]] || return 1
  [[ -e $cuda_home/include/cudnn.h || -e /usr/include/cudnn.h || -e /usr/include/x86_64-linux-gnu/cudnn.h ]]
}

# A tree like a toolkit's, of what the CUDA module includes and links.
fetch_cuda() {
  fetch cuda "${cuda_wheels[@]}"
  local tree=$work/cuda-tree part library
  mkdir -p "$tree/include" "$tree/lib64"
  for part in "$work"/cuda/*/nvidia/*/; do
    if [[ -d $part/include ]]; then cp -a "$part/include/." "$tree/include/"; fi
    if [[ -d $part/lib ]]; then find "$part/lib" -name '*.so*' -exec mv -t "$tree/lib64" {} +; fi
  done
  # Wheels know no links: the names that a linker looks for.
  for library in cudart nvrtc cublasLt cudnn; do
    ln -s "$(basename "$(find "$tree/lib64" -name "lib$library.so.*" -print -quit)")" "$tree/lib64/lib$library.so"
  done
  publish cuda cuda-tree
}

missing_wheels() {
  present onednn onednn-devel-cpu-gomp onednn-cpu-gomp || echo onednn
  present onnx onnx || echo onnx
  if ((cuda)); then
    present cudnn_frontend nvidia-cudnn-frontend || echo cudnn_frontend
    toolkit_here || present cuda "${cuda_wheels[@]}" || echo cuda
  fi
}

fetch_wheels() {
  local -a wanted
  mapfile -t wanted < <(missing_wheels)
  if ((${#wanted[@]} == 0)); then
    return
  fi
  [[ $(uname -m) == x86_64 ]] || die "the pinned wheels are for x86_64; this machine is $(uname -m)"
  python=$(python_that 'import pip, zipfile') || die "no python3 with pip: install python3-pip"
  mkdir -p "$deps"
  exec 9>"$deps/.lock"
  flock 9
  mapfile -t wanted < <(missing_wheels)  # another run may have been faster
  work=$(mktemp -d "$deps/.work-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "Fetching into .deps: ${wanted[*]}"
  local one
  for one in "${wanted[@]}"; do
    "fetch_$one"
  done
}

install_packages
fetch_wheels
