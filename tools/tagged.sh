#!/usr/bin/env bash
# Prints the tests behind build tags, and their packages, for `go test`:
#   tools/tagged.sh TAG[,TAG] FOLDER...
# So a long suite repeats nothing of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${1:?"want build tags and folders, as in: tools/tagged.sh e2e internal/bench"}
shift
mapfile -t files < <(grep -lrE --include='*_test.go' "^//go:build (.* )?(${tags//,/|})\b" "$@")
if [ ${#files[@]} -eq 0 ]; then
	echo "culvert: no test of $* is behind a build tag of $tags" >&2
	exit 1
fi
names=$(grep -hoE '^func Test[A-Za-z0-9_]+\([a-z_]+ \*testing\.T\)' "${files[@]}" | sed 's/^func //; s/(.*//' | sort -u | paste -sd'|')
mapfile -t packages < <(dirname "${files[@]}" | sort -u)
echo "-tags $tags -run ^($names)\$ ${packages[*]/#/./}"
