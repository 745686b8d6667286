#!/usr/bin/env bash
# Builds the fuzzer of the data path:
#   build.sh memory OUT       ASan and UBSan: no access outside the packet
#   build.sh initialized OUT  MSan: nothing that leaves, and no branch, comes from
#                             memory that nobody wrote
#   build.sh n4 OUT           not a fuzzer: what the data path reads in PFCP messages
#   build.sh n4-fuzzer OUT    finds PFCP messages that reach every branch of that
# More arguments are clang's.
set -euo pipefail
case "${1:-}" in
# packets are at any alignment; locals on the real stack are quicker
memory) sanitizers="fuzzer,address,undefined -fno-sanitize=alignment -fsanitize-address-use-after-return=never" ;;
initialized) sanitizers=fuzzer,memory ;;
n4) sanitizers="address,undefined -fno-sanitize=alignment -fsanitize-address-use-after-return=never" ;;
n4-fuzzer) sanitizers="fuzzer,address,undefined -fno-sanitize=alignment -fsanitize-address-use-after-return=never -DFUZZER" ;;
*) echo "build.sh: want memory, initialized, n4 or n4-fuzzer, and a file to write" >&2; exit 2 ;;
esac
source=fuzz.c optimize=-O1
case $1 in n4*) source=n4.c optimize=-O0 ;; esac # sooner built than run
here=$(dirname "$0")
# shellcheck disable=SC2086
exec clang-19 $optimize -gline-tables-only -Wall -Werror -Wno-unused-function -fsanitize=$sanitizers \
	-fno-sanitize-recover=all -I"$here/include" -I"$here/.." "$here/$source" -o "$2" "${@:3}"
