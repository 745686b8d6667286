#!/usr/bin/env bash
# Sizes of the programs that servers and cluster nodes carry, and what makes
# culvert large: its sections, and the machine code of each module.
#
#   tools/size.sh BUILD-TAGS
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CGO_ENABLED=0
go build -trimpath -tags "$1" -ldflags '-s -w' -o "$dir/" ./cmd/culvert ./cmd/culvert-cni
go build -trimpath -tags "$1" -o "$dir/named" ./cmd/culvert

for program in culvert culvert-cni; do
	printf '%8.2f MB  %s\n' "$(awk "BEGIN { print $(stat -c %s "$dir/$program") / 1e6 }")" "$program"
done

echo
size -A "$dir/culvert" | awk '
	$1 == ".text" { about = "machine code" }
	$1 == ".gopclntab" { about = "functions, lines and stacks, for the Go runtime" }
	$1 == ".rodata" { about = "strings, types, the eBPF objects" }
	$1 == ".noptrdata" { about = "initial values of variables" }
	about { printf "%8.2f MB  %s: %s\n", $2 / 1e6, $1, about; about = "" }'

echo
go tool nm -size "$dir/named" | awk '
	$3 ~ /[tT]/ {
		name = $4
		sub(/\[.*/, "", name)
		n = split(name, part, "/")
		sub(/\..*/, "", part[n])
		if (n == 1 || part[1] !~ /\./) module = "the standard library"
		else if (part[1] == "github.com" && n > 2) module = part[1] "/" part[2] "/" part[3]
		else module = part[1] "/" part[2]
		size[module] += $2
	}
	END { for (module in size) if (size[module] > 5e4) printf "%8.2f MB  %s\n", size[module] / 1e6, module }' | sort -rn
