#!/usr/bin/env bash
# Prints the directory of a fresh Debian 12 that debootstrap has made once on this machine: debian.sh plain|systemd. plain
# has what every Debian has, systemd its service manager, too. Tests copy it (test/install). Only root can make one.
set -euo pipefail

release=bookworm
case ${1:-} in
plain) include=() ;;
systemd) include=(--include=systemd-sysv) ;;
*)
	echo "usage: scripts/debian.sh plain|systemd" >&2
	exit 2
	;;
esac
cache=/var/cache/cdc-relay
dir=$cache/debian-$release-$1

if [ ! -d "$dir" ]; then
	# From where this machine has its own packages. Without such a line it is Debian's own address.
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $release" | sed -n 1p)
	echo "making a Debian ($release, $1) in $cache" >&2
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	if ! debootstrap --variant=minbase "${include[@]}" "$release" "$tmp/root" ${mirror:+"$mirror"} >"$tmp/log" 2>&1; then
		tail -n 20 "$tmp/log" "$tmp/root/debootstrap/debootstrap.log" >&2 || true
		echo "debian.sh: debootstrap could not make $release; it needs root, and scripts/deps.sh install" >&2
		exit 1
	fi
	rm -rf "$tmp/root/var/cache/apt/archives" "$tmp/root/var/lib/apt/lists"
	# Whoever finished first has made the same directory.
	mv -T "$tmp/root" "$dir" 2>/dev/null || [ -d "$dir" ]
fi
echo "$dir"
