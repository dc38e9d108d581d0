#!/usr/bin/env bash
# Makes the documentation site of the pages of this checkout in a folder: site.sh FOLDER. It needs Go and Python 3.11 with
# pip. The generator comes from PyPI, pinned by version and hash; `site.sh fetch` fetches it and makes nothing. The same
# commit gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -ne 1 ]; then
	echo "usage: scripts/site.sh FOLDER|fetch" >&2
	exit 2
fi
if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
pinned=tools/site/requirements.txt
generator=$cache/site-$(cat $pinned <(python3 --version) | sha256sum | cut -c1-12)
if [ ! -d "$generator" ]; then
	if ! python3 -m pip --version >/dev/null 2>&1; then
		echo "site.sh: the generator comes from PyPI, and pip is not installed; run: sudo apt-get install python3-pip" >&2
		exit 1
	fi
	echo "fetching the generator of the documentation site into $cache" >&2
	mkdir -p "$cache"
	new=$(mktemp -d "$generator.XXXXXX") # another clone may do the same
	trap 'rm -rf "$new"' EXIT
	# No package is built here: that would run code of an archive.
	if ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary :all: \
		--require-hashes --target "$new" -r $pinned >&2; then
		echo "site.sh: pip could not fetch what $pinned names" >&2
		exit 1
	fi
	chmod 755 "$new"
	mv -T "$new" "$generator" 2>/dev/null || [ -d "$generator" ]
fi
if [ "$1" = fetch ]; then
	exit
fi

folder=$(realpath -m "$1")
stage=$(mktemp -d)
trap 'rm -rf "$stage" "${new:-$stage}"' EXIT
go run ./tools/site stage "$stage"
# It exits with 1 at a link that leads nowhere.
if ! (cd "$stage" && NO_COLOR=1 PYTHONPATH=$generator PYTHONNOUSERSITE=1 python3 -m zensical build --strict >log 2>&1); then
	cat "$stage/log" >&2
	exit 1
fi
go run ./tools/site check "$stage/site"
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
mv "$stage/site" "$folder"
echo "the site is in $folder; to look at it: python3 -m http.server -b 127.0.0.1 -d $folder"
