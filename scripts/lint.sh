#!/usr/bin/env bash
# Runs the linters of .golangci.yml; `lint.sh fmt` formats instead. The version is pinned in tools/lint/go.mod, a module
# of its own so that the relay's go.mod lists only what the relay needs. The binary is built once on a machine, for all clones.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
lint=$cache/golangci-lint-$(cat tools/lint/go.mod tools/lint/go.sum <(go env GOVERSION) | sha256sum | cut -c1-12)
if [ ! -x "$lint" ]; then
	echo "building golangci-lint (a minute, once)"
	mkdir -p "$cache"
	new=$(mktemp "$lint.XXXXXX") # another clone may do the same
	trap 'rm -f "$new"' EXIT
	GOWORK=off go build -C tools/lint -ldflags '-s -w' -o "$new" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	mv "$new" "$lint"
fi

if [ "${1:-}" = fmt ]; then
	exec "$lint" fmt
fi
# All modules of go.work: ./... stops at the folder of another module.
sed -n 's|^\t\(\.[^ ]*\)$|\1/...|p' go.work | xargs "$lint" run --allow-parallel-runners
scripts/tidy.sh -diff
go run ./tools/words
for module in tools/deploycheck tools/testrun; do # outside of the workspace
	(cd "$module" && GOWORK=off "$lint" run --allow-parallel-runners ./... && GOWORK=off go mod tidy -diff)
done
