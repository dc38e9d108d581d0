#!/usr/bin/env bash
# Runs the linters of .golangci.yml; `lint.sh fmt` formats instead. The version is pinned in tools/lint/go.mod, a module
# of its own so that the relay's go.mod lists only what the relay needs. The binary is kept in bin/ until the pin changes.
set -euo pipefail
cd "$(dirname "$0")/.."

pin=$(sha256sum tools/lint/go.mod | cut -c1-12)
lint=bin/golangci-lint-$pin
if [ ! -x "$lint" ]; then
	echo "building golangci-lint (a minute, once)"
	rm -f bin/golangci-lint-*
	(cd tools/lint && GOWORK=off go build -o "../../$lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
fi

if [ "${1:-}" = fmt ]; then
	exec "$lint" fmt
fi
# All modules of go.work: ./... stops at the folder of another module.
sed -n 's|^\t\(\.[^ ]*\)$|\1/...|p' go.work | xargs "$lint" run --allow-parallel-runners
scripts/tidy.sh -diff
go run ./tools/words
for module in tools/deploycheck tools/testrun; do # outside of the workspace
	(cd "$module" && GOWORK=off "../../$lint" run --allow-parallel-runners ./... && GOWORK=off go mod tidy -diff)
done
