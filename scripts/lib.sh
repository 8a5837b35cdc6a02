# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts in this folder: where things are, how to talk, how many jobs.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' plain=$'\e[0m'
else
  bold='' plain=''
fi

# Decoding, tests and whatever else runs share the cores with the engine's threads: one that waits
# gives its core away instead of spinning (on two busy cores the difference is tenfold and more).
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

# say TEXT: a heading; note TEXT: a line below it; die TEXT: the end
say() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# refuse_usage TEXT: an argument that a script doesn't know; the script's usage() is shown
refuse_usage() {
  usage >&2
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# How many compilers fit: one a core, each with 1.5 GB of memory.
build_jobs() {
  local cores memory fit
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1572864)}' /proc/meminfo 2>/dev/null || echo "$cores")
  fit=$((memory < cores ? memory : cores))
  echo $((fit > 0 ? fit : 1))
}

# took SECONDS: "3 min 20 s"
took() {
  if (($1 >= 60)); then
    echo "$(($1 / 60)) min $(($1 % 60)) s"
  else
    echo "$1 s"
  fi
}

# python_that CODE: the first Python 3 here that runs CODE, e.g. 'import numpy'
python_that() {
  local python
  for python in python3 /usr/bin/python3; do
    if command -v "$python" >/dev/null && "$python" -c "$1" 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

# top1 FILE: the last top-1 in what `renaissance train` or `eval` printed, in percent
top1() {
  sed -n 's/^top-1 *\([0-9.]*\) %.*/\1/p' "$1" | tail -n 1
}

# build_preset PRESET [CMAKE ARGUMENT...]: configures and builds build/PRESET, all of it or what the
# variable build_target names
build_preset() {
  local preset=$1 start=$SECONDS jobs
  shift
  jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(build_jobs)}
  say "Building build/$preset with $jobs job(s)"
  mkdir -p "$root/build"
  (cd "$root" && cmake --preset "$preset" "$@" >"$root/build/.configure-$preset.log" 2>&1) || {
    cat "$root/build/.configure-$preset.log" >&2
    die "CMake could not configure build/$preset"
  }
  cmake --build "$root/build/$preset" --parallel "$jobs" --target "${build_target:-all}"
  note "build/$preset is up to date after $(took $((SECONDS - start)))"
}
