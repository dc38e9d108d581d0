#!/usr/bin/env bash
# Passes the output of several test runs through and ends with the sum of their "N passed, N failed" lines.
set -uo pipefail

passed=0 failed=0
while IFS= read -r line; do
	printf '%s\n' "$line"
	if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
		passed=$((passed + BASH_REMATCH[1]))
		failed=$((failed + BASH_REMATCH[2]))
	fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
