#!/usr/bin/env bash
# Writes the dashboards to a directory, with Grafana's own library, which is fetched once.
#   tools/grafana/generate.sh DIRECTORY
set -euo pipefail
here=$(dirname "$0")
library=${XDG_CACHE_HOME:-$HOME/.cache}/culvert/grafana-$(sha256sum "$here/requirements.txt" | cut -c1-12)
if ! [ -e "$library" ]; then
	echo "culvert: fetching Grafana's library of dashboards"
	mkdir -p "$(dirname "$library")"
	fresh=$(mktemp -d "$library.XXXXXX")
	trap 'rm -rf "$fresh"' EXIT
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-compile --require-hashes \
		--target "$fresh" -r "$here/requirements.txt"
	mv -T "$fresh" "$library" 2>/dev/null || [ -e "$library" ] # somebody else was faster
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$library python3 "$here/dashboards.py" "$1"
