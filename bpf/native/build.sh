#!/usr/bin/env bash
# Builds the fuzzer of the data path:
#   build.sh memory OUT       ASan and UBSan: no access outside the packet
#   build.sh initialized OUT  MSan: nothing that leaves, and no branch, comes from
#                             memory that nobody wrote
set -euo pipefail
case "${1:-}" in
# packets are at any alignment; locals on the real stack are quicker
memory) sanitizers="fuzzer,address,undefined -fno-sanitize=alignment -fsanitize-address-use-after-return=never" ;;
initialized) sanitizers=fuzzer,memory ;;
*) echo "build.sh: want memory or initialized, and a file to write" >&2; exit 2 ;;
esac
here=$(dirname "$0")
# shellcheck disable=SC2086
exec clang-19 -O1 -gline-tables-only -Wall -Werror -Wno-unused-function -fsanitize=$sanitizers \
	-fno-sanitize-recover=all -I"$here/include" -I"$here/.." "$here/fuzz.c" -o "$2"
