#!/usr/bin/env bash
# Runs one step of the build and says how long it took: step.sh NAME COMMAND...
set -uo pipefail

name=$1
shift
printf '== %s\n' "$name"
SECONDS=0
"$@"
rc=$?
if [ "$rc" -eq 0 ]; then
	printf '== %s: ok, %d s\n' "$name" "$SECONDS"
else
	printf '== %s: FAILED (exit %d), %d s\n' "$name" "$rc" "$SECONDS"
fi
exit "$rc"
