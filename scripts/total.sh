#!/usr/bin/env bash
# Passes the output of several test runs through and ends with what failed in any of them and why (as bin/testrun says at the
# end of each), and with the sum of their "N passed, N failed" lines.
set -uo pipefail
trap '' INT TERM # it reads to the end: what writes to it has to end first

passed=0 failed=0 why='' inside=''
while IFS= read -r line; do
	printf '%s\n' "$line"
	case $line in
	'failed: '*) inside=1 ;;
	'    '* | 'panic: '* | 'fatal error: '*) ;;
	*) inside='' ;;
	esac
	if [[ $inside ]]; then
		why+=$line$'\n'
	fi
	if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
		passed=$((passed + BASH_REMATCH[1]))
		failed=$((failed + BASH_REMATCH[2]))
	fi
done
printf '%s%d passed, %d failed\n' "$why" "$passed" "$failed"
