#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: install_test.sh BUILD_DIR
# Installs, moves the installed tree, and builds a C program against it through
# find_package and through pkg-config. No path of the source or build tree is left in it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# logged COMMAND...: its output appears only when it fails
logged() {
  "$@" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
  }
}

logged cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/moved"
prefix=$work/moved
(cd "$prefix" && find . \( -type f -o -type l \) | sort)

leftovers=$(grep -rlF -e "$build" "$prefix/include" "$prefix"/lib*/cmake "$prefix"/lib*/pkgconfig || true)
[[ -z $leftovers ]] || {
  echo "paths of the build tree in: $leftovers"
  exit 1
}

echo "-- find_package"
logged cmake -G Ninja -S "$here" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix"
logged cmake --build "$work/consumer"
"$work/consumer/consumer"

echo "-- pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name renaissance.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir renaissance)
read -ra flags < <(pkg-config --cflags --libs renaissance)
"${CC:-cc}" -std=c99 -Wall -Wextra -Werror "$here/consumer.c" "${flags[@]}" "-Wl,-rpath,$libdir" -o "$work/with_pkgconfig"
"$work/with_pkgconfig"

if [[ -x $prefix/bin/renaissance ]]; then
  echo "-- the program"
  "$prefix/bin/renaissance" --version
fi
