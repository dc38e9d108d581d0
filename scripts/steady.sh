#!/usr/bin/env bash
# Runs `make test` N times, each in a fresh clone of HEAD, the last BUSY of them beside two busy loops (half of them, without
# BUSY): steady.sh N [BUSY]. It prints a line for each run and, of a red one, each test that failed and why. They share the build
# cache: what is compiled is the same, and results of tests are not cached.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:?usage: scripts/steady.sh N [BUSY]}
busy=${2:-$((runs / 2))}
dir=$(mktemp -d)
commit=$(git rev-parse HEAD)
loops=() run=''

# Idle ends the loops. They end by themselves when this script is killed.
idle() {
	[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null || true
	loops=()
}
finish() {
	idle
	if [ -n "$run" ] && kill -- "-$run" 2>/dev/null; then
		while kill -0 -- "-$run" 2>/dev/null; do sleep 0.1; done # the servers end in order
	fi
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

red=0
for ((n = 1; n <= runs; n++)); do
	git clone --quiet . "$dir/clone"
	git -C "$dir/clone" checkout --quiet --detach "$commit"
	beside=''
	if ((n > runs - busy)); then
		beside=', beside two busy loops'
		for _ in 1 2; do
			bash -c 'while kill -0 "$1" 2>/dev/null; do for ((i = 0; i < 1000000; i++)); do :; done; done' loop $$ &
			loops+=($!)
			disown
		done
	fi
	SECONDS=0 verdict=green
	setsid make -C "$dir/clone" --no-print-directory test >"$dir/log" 2>&1 &
	run=$!
	wait "$run" || verdict=RED
	run=''
	idle
	passed=$(grep -oE '^[0-9]+ passed, [0-9]+ failed$' "$dir/log" | tail -n 1) || passed='no test ran'
	printf '%d/%d %s: %d s, %s%s\n' "$n" "$runs" "$verdict" "$SECONDS" "$passed" "$beside"
	if [ $verdict = RED ]; then
		red=1
		# what scripts/total.sh says at the end; without it, the end of the log
		awk '/^took /{said=""; next} /^make/{next} {said=said $0 "\n"} END{printf "%s", said}' "$dir/log" | grep -A1000 '^failed: ' || tail -n 20 "$dir/log"
	fi
	rm -rf "$dir/clone"
done
exit $red
