#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every script parses, is executable and has its SPDX line, shellcheck agrees where it is installed;
# those for people refuse arguments that they don't know, and what the quick start quotes is in README.md.
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

# refuses SCRIPT ARGUMENT...: usage on standard error and exit code 2, before anything is done
refuses() {
  local code=0 said
  said=$(timeout 20 bash "$@" 2>&1 >/dev/null </dev/null) || code=$?
  [[ $code == 2 && $said == *usage:* ]] || complain "$* should be refused with its usage, not end with $code"
}
for script in scripts/{build,deps,quickstart,test,dev/pack_gpu}.sh bindings/python/tests/run.sh; do
  refuses "$script" --no-such-argument
done
for script in scripts/{build,deps,quickstart,test}.sh bindings/python/tests/run.sh; do
  refuses "$script" no-such-argument
done
refuses scripts/build.sh release no-such-argument
refuses scripts/test.sh --quick -R importer no-such-argument
EPOCHS=few refuses scripts/quickstart.sh

for quoted in 'bin/renaissance train' 'bin/renaissance predict' 'renaissance export' ; do
  sed -e '1,/^## Your own data$/d' -e '/^## /,$d' README.md | grep -qF "$quoted" ||
    complain "README.md's section 'Your own data', which the quick start shows, has no '$quoted'"
done
echo "${#scripts[@]} scripts read"
exit $failed
