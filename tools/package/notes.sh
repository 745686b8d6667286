#!/usr/bin/env bash
# The release notes of a version: its section of CHANGELOG.md.
#   tools/package/notes.sh 1.2.3 [CHANGELOG.md]
set -euo pipefail
cd "$(dirname "$0")/../.."

awk -v version="$1" '
	/^## / { here = ($2 == version); found = found || here; next }
	here
	END { exit !found }
' "${2:-CHANGELOG.md}" | sed '/./,$!d' || {
	echo "culvert: CHANGELOG.md has no section \"## $1\": write what users notice" >&2
	exit 1
}
