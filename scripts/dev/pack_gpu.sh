#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs programs of a CUDA build with the shared libraries they need, for a machine with a GPU that
# has no compiler or other versions of these libraries. Left to that machine: the C library, the
# driver and CUDA's own libraries, which run-gpu.sh in the archive finds.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

usage() {
  cat <<'TEXT'
usage: scripts/dev/pack_gpu.sh [--build FOLDER] [--output FILE] [PROGRAM...]

  --build   the build folder (build/cuda)
  --output  the archive to write (carry/gpu.tar.xz)
  PROGRAM   names in the build's bin folder; all of them when none is given

There: tar -xf gpu.tar.xz && gpu/run-gpu.sh PROGRAM [ARGUMENT...]
TEXT
}

build=$root/build/cuda output=$root/carry/gpu.tar.xz
programs=()
while (($#)); do
  case $1 in
    --build) build=$2 && shift ;;
    --output) output=$2 && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) refuse_usage "unknown argument '$1'" ;;
    *) programs+=("$1") ;;
  esac
  shift
done
if ((${#programs[@]} == 0)); then
  mapfile -t programs < <(cd "$build/bin" && ls)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/gpu/bin" "$work/gpu/lib" "$(dirname "$output")"

for program in "${programs[@]}"; do
  [[ -x $build/bin/$program ]] || die "no program $program in $build/bin"
  cp -L "$build/bin/$program" "$work/gpu/bin/"
done
modules=("$build"/lib/*.so*)
[[ -e ${modules[0]} ]] && cp -a "${modules[@]}" "$work/gpu/lib/"

# The libraries behind them, but for what belongs to the other machine.
readonly theirs='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+)|lib(cuda|cudart|cublas|cublasLt|cudnn[^/]*|nvrtc[^/]*|nccl|nvidia[^/]*))\.so'
ldd "$work"/gpu/bin/* "$work"/gpu/lib/* 2>/dev/null | sed -n 's/.* => \(\/[^ ]*\) (.*/\1/p' | sort -u |
  { grep -vE "$theirs" || true; } | while read -r library; do
  [[ $library == "$work"/* ]] || cp -L "$library" "$work/gpu/lib/"
done
strip --strip-debug "$work"/gpu/bin/* "$work"/gpu/lib/*.so* 2>/dev/null || true

cat >"$work/gpu/run-gpu.sh" <<'RUN'
#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run-gpu.sh PROGRAM [ARGUMENT...]: with the libraries of this archive and CUDA's, those of Python's
# nvidia wheels before the system's.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wheels=$(python3 - <<'PYTHON' 2>/dev/null
import glob, nvidia
print(":".join(sorted(d for p in nvidia.__path__ for d in glob.glob(p + "/*/lib"))))
PYTHON
)
export LD_LIBRARY_PATH="$here/lib${wheels:+:$wheels}:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
program=$1
shift
exec "$here/bin/$program" "$@"
RUN
chmod +x "$work/gpu/run-gpu.sh"
tar -C "$work" -cf - gpu | xz -T0 -6 >"$work/archive"
mv "$work/archive" "$output"
note "$output: $(du -h "$output" | cut -f1), ${#programs[@]} program(s)"
