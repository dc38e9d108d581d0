#!/usr/bin/env bash
# Runs the linters of .golangci.yml, and actionlint; `lint.sh fmt` formats instead. `lint.sh product`, a part of make test-all,
# lints what is in the binary and what users import; of all else it sees that it is formatted, and that the tests of the nightly
# tier compile. The versions are pinned in modules of their own, tools/lint and tools/release, so that the relay's go.mod lists
# only what the relay needs. The binaries are built once on a machine, for all clones.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
built() { # built MODULE PACKAGE: the path of the program
	local file new
	file=$cache/${2##*/}-$(cat "$1/go.mod" "$1/go.sum" <(go env GOVERSION) | sha256sum | cut -c1-12)
	if [ ! -x "$file" ]; then
		echo "building ${2##*/} (a minute, once)" >&2
		mkdir -p "$cache"
		new=$(mktemp "$file.XXXXXX") # another clone may do the same
		GOWORK=off go build -C "$1" -ldflags '-s -w' -o "$new" "$2" || { rm -f "$new"; return 1; }
		mv "$new" "$file"
	fi
	echo "$file"
}
lint=$(built tools/lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
if [ "${1:-}" = fmt ]; then
	exec "$lint" fmt
fi
if [ "${1:-}" = product ]; then
	"$lint" run --allow-parallel-runners --tests=false ./cmd/... ./internal/... ./internal/kafkaclient/... ./outbox/... ./inbox/...
	"$lint" fmt --diff
	# shellcheck disable=SC2046 # several packages
	go vet -tags testall,nightly $(grep -rl --include='*_test.go' '^//go:build nightly' . | grep -v '^./tools/[dr]' | xargs dirname | sort -u)
else
	# All modules of go.work: ./... stops at the folder of another module.
	sed -n 's|^\t\(\.[^ ]*\)$|\1/...|p' go.work | xargs "$lint" run --allow-parallel-runners
fi
scripts/tidy.sh -diff
go run ./tools/words
"$(built tools/release github.com/rhysd/actionlint/cmd/actionlint)" -shellcheck= # which not every machine has
for module in tools/deploycheck tools/release tools/testrun; do # outside of the workspace
	[ "${1:-}" = product ] || (cd "$module" && GOWORK=off "$lint" run --allow-parallel-runners ./...)
	(cd "$module" && GOWORK=off go mod tidy -diff)
done
