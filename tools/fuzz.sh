#!/usr/bin/env bash
# Looks for inputs that break something:
#   tools/fuzz.sh FRAMES [SECONDS]
# FRAMES through the data path in user space under ASan and UBSan, a quarter as
# many under MSan, FRAMES through the loaded program beside the reference model,
# as many PFCP messages to the N4 server, by itself and with the data path behind
# it, a 200th as many requests about sessions that data path and daemon share, each of which
# waits for an answer, then every Go fuzz target for SECONDS (20). Whatever finds something is run to
# its end; a finding leaves its input behind and the exit code at 1.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

frames=${1:?"want the number of frames, as in: tools/fuzz.sh 10000000"}
seconds=${2:-20}
seed=${SEED:-$(date +%s)}
kept=$(mktemp -d)
summary=()
findings=0

# step NAME COMMAND...: runs it, shows the end of what a failing one said.
step() {
	local name=$1 begun=$SECONDS
	shift
	echo "culvert: $name"
	if "$@" >"$kept/log" 2>&1; then
		summary+=("ok       $((SECONDS - begun)) s  $name")
	else
		summary+=("FINDING  $((SECONDS - begun)) s  $name")
		findings=$((findings + 1))
		tail -n 60 "$kept/log"
	fi
}

native() { # variant runs
	bpf/native/build.sh "$1" "$kept/$1" &&
		"$kept/$1" -runs="$2" -seed="$seed" -max_len=512 -artifact_prefix="$kept/$1-"
}

step "data path in user space, ASan and UBSan, $frames inputs" native memory "$frames"
step "data path in user space, MSan, $((frames / 4)) inputs" native initialized $((frames / 4))
step "loaded program beside the model, $frames frames" \
	go test ./internal/dataplane -count=1 -timeout 0 -run '^TestFuzzAgainstModel$' -frames "$frames" -seed "$seed"
step "N4 server, $frames PFCP messages" \
	go test ./internal/pfcp -count=1 -timeout 0 -run '^TestRandomMessages$' -messages "$frames" -seed "$seed"
step "PFCP read by data path and daemon, $frames messages" \
	go test ./internal/pfcp -count=1 -timeout 0 -run '^TestDataPathReadsLikeTheDaemon$' -messages "$frames" -seed "$seed"
step "N4 server with the data path behind it, $frames PFCP messages" \
	go test ./internal/upf -count=1 -timeout 0 -run '^TestRandomN4$' -messages "$frames" -seed "$seed"

step "sessions that data path and daemon share, $((frames / 200)) requests" \
	go test ./internal/upf -count=1 -timeout 0 -run '^(TestTheDataPathAnswersAsTheDaemon|TestSharedSessions.*)$' -shared-requests $((frames / 200)) -shared-kills $((frames / 100000 + 1)) -shared-seed "$seed"

# The Go fuzzer now and then takes the end of its own time for a failure: then
# there is no failing input.
target() { # package name
	local out
	out=$(go test "./$1" -run '^$' -fuzz "^$2\$" -fuzztime "${seconds}s" 2>&1) && return
	printf '%s\n' "$out"
	grep -q 'context deadline exceeded' <<<"$out" && ! grep -qE 'Failing input|panic|\.go:[0-9]+:' <<<"$out"
}

targets=0
while IFS=: read -r file name; do
	targets=$((targets + 1))
	step "$name of $(dirname "$file"), $seconds s" target "$(dirname "$file")" "$name"
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's/:func /:/; s,^\./,,' | LC_ALL=C sort)
[ $targets -gt 0 ] || { summary+=("FINDING  0 s  no Go fuzz target was found"); findings=$((findings + 1)); }

echo
echo "culvert: fuzzing with seed $seed"
printf '  %s\n' "${summary[@]}"
if [ $findings -gt 0 ]; then
	echo "culvert: $findings of ${#summary[@]} found something; inputs are in $kept and in testdata/fuzz"
	exit 1
fi
rm -r "$kept"
echo "culvert: nothing was found"
