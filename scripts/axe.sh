#!/usr/bin/env bash
# Prints the path of axe.min.js, which looks for what keeps people with disabilities from using a page, fetching it once.
# It comes from the npm package axe-core (MPL-2.0), pinned by version and hash. Only the nightly tests of the console load it.
set -euo pipefail

version=4.14.1
sha512=FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==

if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
file=$cache/axe-$version.min.js

if [ ! -f "$file" ]; then
	if ! command -v npm >/dev/null; then
		echo "axe.sh: axe-core comes from npm, which is not installed; run: sudo apt-get install nodejs npm" >&2
		exit 1
	fi
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	cd "$tmp"
	if ! archive=$(npm pack --loglevel=error "axe-core@$version"); then
		echo "axe.sh: npm could not fetch axe-core@$version" >&2
		exit 1
	fi
	got=$(openssl dgst -sha512 -binary "$archive" | base64 -w0)
	if [ "$got" != "$sha512" ]; then
		echo "axe.sh: axe-core@$version has sha512 $got, want $sha512; not used" >&2
		exit 1
	fi
	tar --no-same-owner -xzf "$archive" package/axe.min.js
	mv package/axe.min.js "$file"
fi
echo "$file"
