#!/usr/bin/env bash
# Prints the folder of the programs that make and check releases, building them once on a machine: the tools that
# tools/release/go.mod pins, and those of that module.
set -euo pipefail
cd "$(dirname "$0")/../tools/release"
if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
dir=$cache/release-$(cat go.mod go.sum ./*/main.go <(go env GOVERSION) | sha256sum | cut -c1-12)
if [ ! -d "$dir" ]; then
	echo "building goreleaser and other tools of a release (some minutes, once)" >&2
	mkdir -p "$cache"
	new=$(mktemp -d "$dir.XXXXXX") # another clone may do the same
	trap 'rm -rf "$new"' EXIT
	GOPROXY=$(go env GOPROXY) GOSUMDB=$(go env GOSUMDB) GOTOOLCHAIN=$(go env GOTOOLCHAIN)
	export GOPROXY GOSUMDB GOTOOLCHAIN GOENV=off GOWORK=off GOFLAGS= GOEXPERIMENT= GOFIPS140=off GOBIN=$new CGO_ENABLED=0
	go install -ldflags '-s -w' tool ./...
	# Its lists have its own hash: the same bytes wherever it is built.
	GOAMD64=v1 go install -trimpath -buildvcs=false -ldflags '-s -w' github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	chmod 755 "$new"
	mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir" ]
fi
echo "$dir"
