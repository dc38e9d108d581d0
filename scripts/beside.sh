#!/usr/bin/env bash
# Makes targets side by side: beside.sh 'TARGET ...' 'TARGET ...'; those of one argument one after the other. What the first
# make says is seen at once, what the others say when all have ended.
set -uom pipefail # -m: an interrupt is passed on to the processes of each make

said=$(mktemp -d)
trap 'cat "$said"/* && rm -rf "$said"' EXIT # also of what was interrupted
runs=()
stop() {
	for run in "${runs[@]}"; do
		kill -INT -- "-$run" 2>/dev/null
	done
	wait
	exit 130
}
trap stop INT TERM
exec 3>&1 4>&2
for targets in "$@"; do
	# shellcheck disable=SC2086 # several words
	make -k --no-print-directory $targets >&3 2>&4 &
	runs+=($!)
	exec 3>"$said/${#runs[@]}" 4>&3
done
red=0
for run in "${runs[@]}"; do
	wait "$run" || red=1
done
exit $red
