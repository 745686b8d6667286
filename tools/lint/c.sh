#!/usr/bin/env bash
# Checks the format of all C files, and looks for bugs in the programs with
# clang-tidy.
set -euo pipefail
cd "$(dirname "$0")/../.."

# bpf/native/include stands in for headers of libbpf.
find bpf \( -name '*.[ch]' \) -not -path '*/include/*' -print0 | xargs -0 clang-format-19 --dry-run -Werror ||
	{ echo "culvert: run clang-format-19 -i on these" >&2; exit 1; }

flags=(-target bpfel -O2 -mcpu=v3 -Ibpf -idirafter "/usr/include/$(uname -m)-linux-gnu")
clang-tidy-19 --quiet bpf/datapath.c -- "${flags[@]}" -include bpf/def/btf.h 2>/dev/null
clang-tidy-19 --quiet bpf/bench.c bpf/traffic.c bpf/requests.c bpf/soft/kernel.c -- "${flags[@]}" 2>/dev/null
