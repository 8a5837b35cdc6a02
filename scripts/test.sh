#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is checked before a change is accepted: builds dev (AddressSanitizer,
# UBSan) and release, and runs their tests. dev runs what is labelled unit or cpu;
# release runs all, the slow ones and those of the Python helper included.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: scripts/test.sh [--quick] [CTEST ARGUMENT...]

  --quick          release only, without the slow tests
  CTEST ARGUMENT   an option of ctest with its value, e.g. -R importer

  RENAISSANCE_TEST_PYTHON  a Python with PyTorch, torchvision, onnx, onnxscript,
                           onnxruntime and safetensors for the helper's tests;
                           without it they are installed into .venv (about 6 GB),
                           and where that fails those tests are skipped
  RENAISSANCE_NO_TORCH=1   don't install them
  RENAISSANCE_PARITY       folder of parity models and goldens; by default
                           ../shared/parity where there is one
TEXT
}

quick=0
case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
  --quick)
    quick=1
    shift
    ;;
esac
# ctest itself passes over what it doesn't know, and would run everything.
previous=
for argument in "$@"; do
  case $argument in
    -j[0-9]*) ;;
    -*)
      grep -qE -- "(^|[ ,])${argument%%=*}([ ,=]|\$)" <(ctest --help 2>/dev/null) ||
        refuse_usage "unknown argument '$argument'"
      ;;
    *) [[ $previous == -* ]] || refuse_usage "unknown argument '$argument'" ;;
  esac
  previous=$argument
done
ctest_arguments=("$@")
start=$SECONDS
mkdir -p "$root/build"

if [[ -z ${RENAISSANCE_PARITY:-} && -d $root/../shared/parity ]]; then
  RENAISSANCE_PARITY=$(cd "$root/../shared/parity" && pwd)
fi
export RENAISSANCE_PARITY=${RENAISSANCE_PARITY:-}

# --- a Python with PyTorch, installed while the compiler works ---------------

readonly venv=$root/.venv
readonly requirements=$root/bindings/python/requirements-test.txt
readonly venv_log=$root/build/.venv.log

make_venv() {
  local free
  free=$(df --output=avail -k "$root" | tail -n 1)
  if ((free < 10 * 1024 * 1024)); then
    echo "less than 10 GB of disk is free"
    return 1
  fi
  rm -rf "$venv"
  "$(python_that 'import venv, ensurepip')" -m venv "$venv" &&
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-cache-dir -r "$requirements" &&
    cp "$requirements" "$venv/.installed"
}

venv_job=
if [[ -n ${RENAISSANCE_TEST_PYTHON:-} ]]; then
  note "the Python helper is tested with $RENAISSANCE_TEST_PYTHON"
elif cmp -s "$requirements" "$venv/.installed"; then
  export RENAISSANCE_TEST_PYTHON=$venv/bin/python
fi

"$root/scripts/deps.sh"

if [[ -z ${RENAISSANCE_TEST_PYTHON:-} && -z ${RENAISSANCE_NO_TORCH:-} ]] && ((!quick)); then
  say "Installing PyTorch into .venv for the Python helper's tests, in the background"
  make_venv >"$venv_log" 2>&1 &
  venv_job=$!
  trap 'kill "$venv_job" 2>/dev/null || true' EXIT
fi

# --- build and test ----------------------------------------------------------

failed=()
summaries=()

# run_ctest PRESET ARGUMENT...: keeps going after a failure, for the summary at the end
run_ctest() {
  local preset=$1 log=$root/build/.ctest-$1.log begun=$SECONDS
  shift
  say "Testing build/$preset"
  ctest --test-dir "$root/build/$preset" --output-on-failure --no-tests=error --parallel "$(nproc)" \
    "$@" "${ctest_arguments[@]}" 2>&1 | tee "$log" || failed+=("$preset")
  summaries+=("$(printf '%-8s %s, %s' "$preset:" \
    "$(grep -E '^[0-9]+% tests passed' "$log" || echo 'no tests passed')" "$(took $((SECONDS - begun)))")")
}

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

if ((quick)); then
  build_preset release
  run_ctest release --label-exclude 'slow|gpu'
else
  build_preset dev
  run_ctest dev --label-regex 'unit|cpu' --label-exclude 'slow|gpu'
  build_preset release
  if [[ -n $venv_job ]]; then
    say "Waiting for PyTorch"
    if wait "$venv_job"; then
      export RENAISSANCE_TEST_PYTHON=$venv/bin/python
    else
      tail -n 3 "$venv_log"
      note "PyTorch could not be installed (see $venv_log): the Python helper's tests are skipped"
    fi
    trap - EXIT
  fi
  run_ctest release
fi

# --- the end -----------------------------------------------------------------

say "Tests took $(took $((SECONDS - start))) with building and installing"
printf '%s\n' "${summaries[@]}"
((${#failed[@]} == 0)) || die "tests failed in: ${failed[*]}"
