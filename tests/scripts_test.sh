#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every script parses, is executable and has its SPDX line; shellcheck agrees where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
complain() {
  echo "$*"
  failed=1
}
mapfile -t scripts < <(find scripts tests bindings/python examples .ci -type f \( -name '*.sh' -o -path '.ci/*' \) | sort)
for script in "${scripts[@]}"; do
  bash -n "$script" || complain "$script does not parse"
  grep -q '^# SPDX-License-Identifier: Apache-2.0$' "$script" || complain "$script has no SPDX line"
  if head -n 1 "$script" | grep -q '^#!'; then
    [[ -x $script ]] || complain "$script is not executable"
  fi
done
if command -v shellcheck >/dev/null; then
  shellcheck --external-sources --source-path=SCRIPTDIR/.. "${scripts[@]}" || failed=1
fi
echo "${#scripts[@]} scripts read"
exit $failed
