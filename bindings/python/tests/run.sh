#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the helper's tests with RENAISSANCE_TEST_PYTHON, .venv or the first Python with PyTorch.
set -euo pipefail
if (($#)); then
  echo "usage: bindings/python/tests/run.sh        (it takes no arguments)" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/../../.." && pwd)
for python in "${RENAISSANCE_TEST_PYTHON:-}" "$root/.venv/bin/python" python3; do
  if [[ -n $python ]] && command -v "$python" >/dev/null && "$python" -c 'import torch, onnx, safetensors' 2>/dev/null; then
    cd "$root/bindings/python"
    exec "$python" -m unittest discover --start-directory tests --top-level-directory . --verbose
  fi
done
echo "skipped: no Python with torch, onnx and safetensors; set RENAISSANCE_TEST_PYTHON or run scripts/test.sh"
exit 77
