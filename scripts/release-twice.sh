#!/usr/bin/env bash
# Makes the newest version of CHANGELOG.md twice, from two clones in folders of different names, the second with a build
# cache, a time zone, a umask and flags of its own, and compares all files: release-twice.sh
set -euo pipefail
cd "$(dirname "$0")/.."
version=v$(sed -n '/^## \[[0-9]/{s/^## \[\([^]]*\)\].*/\1/p;q}' CHANGELOG.md)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git -c safe.directory='*' clone -q . "$tmp/one"
git -c safe.directory='*' clone -q . "$tmp/a folder of another name"
scripts/release-tools.sh >/dev/null
make_in() { make --no-print-directory -C "$1" release VERSION="$version" >"$tmp/said" || { cat "$tmp/said"; exit 1; }; }
make_in "$tmp/one"
(
	umask 077
	{ cat "$(go env GOENV)" 2>/dev/null || true; printf '%s\n' GOFLAGS=-buildvcs=false GOFIPS140=latest; } >"$tmp/goenv"
	export TZ=Asia/Kathmandu LC_ALL=en_US.UTF-8 GOCACHE=$tmp/cache GOENV=$tmp/goenv GOAMD64=v3
	unset GOFLAGS GOFIPS140
	make_in "$tmp/a folder of another name"
)
sums() { (cd "$1/dist" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); }
diff <(sums "$tmp/one") <(sums "$tmp/a folder of another name")
files=$(sums "$tmp/one" | wc -l)
[ "$files" -gt 15 ] || { echo "release-twice: only $files files were made" >&2; exit 1; }
echo "release-twice: $files files of $version, the same twice"
