#!/usr/bin/env bash
# Generates everything again in a copy of the tree and compares: what is
# committed must be, bit for bit, what the sources say. Works without git, too.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# files [DIRECTORY]: the files of a tree, but for what was built or downloaded.
files() {
	(cd "${1:-.}" && find . \( -path ./.git -o -path ./bin -o -path ./.cache -o -path ./internal/ui/web/node_modules \) -prune -o -type f -printf '%P\n' | LC_ALL=C sort)
}

# Another system's clang-19 and headers make another object of the same source, and
# its Graphviz another figure: as good, but not the same octets.
reference() {
	# shellcheck disable=SC1091
	(. /etc/os-release && [ "$ID $VERSION_ID" = "debian 12" ])
}

files | tar -cf - -T - | tar -xf - -C "$copy"
mkdir -p .cache && ln -s "$PWD/.cache" "$copy/.cache" # packages of npm
# where what is generated is missing, generating makes it all the same
(cd "$copy" && go generate ./srv6 && go generate ./...)

skipped=0 different=()
while read -r file; do
	cmp -s "$file" "$copy/$file" && continue
	if [[ $file == *.o || $file == *.svg ]] && [ -e "$file" ] && ! reference; then
		skipped=$((skipped + 1))
	else
		different+=("$file")
	fi
done < <(files "$copy")

if [ ${#different[@]} -gt 0 ]; then
	printf 'culvert: %s differs from what "make generate" makes\n' "${different[@]}" >&2
	echo "culvert: run 'make generate' and commit the result" >&2
	exit 1
fi
if [ $skipped -gt 0 ]; then
	echo "culvert: generated files are up to date; $skipped objects and figures were made but not compared, which needs Debian 12"
else
	echo "culvert: generated files are up to date"
fi
