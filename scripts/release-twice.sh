#!/usr/bin/env bash
# Makes the newest version of CHANGELOG.md twice, from two clones in folders of different names, the second with a build
# cache, a time zone, a umask and flags of its own, and compares all files: release-twice.sh
set -euo pipefail
cd "$(dirname "$0")/.."
version=v$(sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git -c safe.directory='*' clone -q . "$tmp/one"
git -c safe.directory='*' clone -q . "$tmp/a folder of another name"
scripts/release-tools.sh >/dev/null
(cd "$tmp/one" && make --no-print-directory release VERSION="$version" >"$tmp/said")
(
	cd "$tmp/a folder of another name"
	umask 077
	export TZ=Asia/Kathmandu LC_ALL=en_US.UTF-8 GOCACHE=$tmp/cache GOFLAGS=-buildvcs=false GOAMD64=v3
	make --no-print-directory release VERSION="$version" >"$tmp/said"
) || {
	cat "$tmp/said"
	exit 1
}
sums() { (cd "$1/dist" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); }
diff <(sums "$tmp/one") <(sums "$tmp/a folder of another name")
files=$(sums "$tmp/one" | wc -l)
[ "$files" -gt 15 ] || { echo "release-twice: only $files files were made" >&2; exit 1; }
echo "release-twice: $files files of $version, the same twice"
