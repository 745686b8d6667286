#!/usr/bin/env bash
# Draws the figures of the documents from their sources (Graphviz, package graphviz).
set -euo pipefail
cd "$(dirname "$0")"
for source in *.dot; do
	dot -Tsvg "$source" -o "${source%.dot}.svg"
done
