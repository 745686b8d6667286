#!/usr/bin/env bash
# Checks the commits since REVISION (default: since these rules are held):
#   tools/lint/commits.sh [REVISION]
#   - the subject is "area: verb object" with at most 72 characters, without a full stop;
#   - the verb is imperative: "add", not "adds", "added" or "adding";
#   - at least half of the commits say why in a body.
# Where git has no history (an unpacked archive) there is nothing to check.
set -euo pipefail
cd "$(dirname "$0")/../.."

since=${1:-7e0b29909f0a43099e1cbd1b0893377581123463}
if ! git cat-file -e "$since^{commit}" 2>/dev/null; then
	echo "culvert: commit subjects are not checked: $since is not in this checkout"
	exit 0
fi

faults=0 all=0 with_body=0
fault() { # commit subject what
	echo "culvert: commit ${1:0:9} \"$2\": $3" >&2
	faults=$((faults + 1))
}

while read -r commit; do
	subject=$(git log -1 --format=%s "$commit")
	all=$((all + 1))
	[ -z "$(git log -1 --format=%b "$commit")" ] || with_body=$((with_body + 1))
	[ ${#subject} -le 72 ] || fault "$commit" "$subject" "${#subject} characters, at most 72"
	if ! [[ $subject =~ ^[a-z0-9./_,\ -]+:\ ([a-z][a-z-]*)\ .*[^.]$ ]]; then
		fault "$commit" "$subject" 'want "area: verb object", without a full stop'
		continue
	fi
	verb=${BASH_REMATCH[1]}
	if [[ $verb =~ (ed|ing)$ && ! $verb =~ ^(bring|embed|feed|need|seed|speed|string)$ ]]; then
		fault "$commit" "$subject" "want an imperative, as \"add\", in place of \"$verb\""
	fi
done < <(git rev-list --no-merges "$since"..HEAD)

[ $((with_body * 2)) -ge $all ] || {
	echo "culvert: $with_body of $all commits say why in a body: want at least half" >&2
	faults=$((faults + 1))
}
[ $faults = 0 ] || exit 1
echo "culvert: $all commits since ${since:0:9}, $with_body with a body"
