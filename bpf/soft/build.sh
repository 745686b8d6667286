#!/usr/bin/env bash
# Builds the data path as a program of user space: build.sh OUT
set -euo pipefail
here=$(dirname "$0")
exec clang-19 -O3 -g -Wall -Werror -Wno-unused-function -fno-strict-aliasing -ffunction-sections \
	-Wl,--gc-sections -pthread -I"$here/../native/include" -I"$here/.." "$here/soft.c" -o "${1:?a file to write}"
