#!/usr/bin/env bash
# Makes the release of the commit twice, from clones in two folders, and wants the same octets.
set -euo pipefail
cd "$(dirname "$0")/../.."

described=$(git describe --tags --always)
commit=$(git rev-parse HEAD) # of now, whatever is committed meanwhile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in one another/place; do
	git clone -q . "$work/$folder"
	git -C "$work/$folder" checkout -q --detach "$commit"
	FORCE=1 "$work/$folder/tools/package/release.sh" "$work/$folder/bin/release" "$described"
done
diff "$work/one/bin/release/SHA256SUMS" "$work/another/place/bin/release/SHA256SUMS" ||
	{ echo "culvert: two builds of $described differ" >&2; exit 1; }
echo "culvert: two builds of $described have the same $(wc -l <"$work/one/bin/release/SHA256SUMS") files"
