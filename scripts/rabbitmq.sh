#!/usr/bin/env bash
# Prints the folder of a RabbitMQ of another version than the system's, fetching it once: rabbitmq.sh 3.10|4. Its usr has the broker, Erlang
# and all that they need, of one Debian release: internal/devenv/servers/rabbitserver starts it with this as its /usr. The packages are
# those of Debian's archive now, checked by its signature. They are unpacked only: nothing of theirs runs here or is installed.
set -euo pipefail

case ${1:-} in
3.10) release=bookworm ;;
4) release=trixie ;;
*)
	echo "usage: scripts/rabbitmq.sh 3.10|4" >&2
	exit 2
	;;
esac
# what Debian takes to be there, for the shell scripts that start a broker
needed=(rabbitmq-server bash dash coreutils util-linux mount sed grep mawk findutils hostname procps libc-bin)
keys=/usr/share/keyrings/debian-archive-keyring.gpg

# A server that does not run as root cannot enter root's home.
if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
dir=$cache/rabbitmq-$1

if [ ! -d "$dir" ]; then
	if ! command -v apt-get >/dev/null || [ ! -e "$keys" ]; then
		echo "rabbitmq.sh: RabbitMQ $1 comes from Debian's archive, and this system has no apt-get, or not its keys (debian-archive-keyring)" >&2
		exit 1
	fi
	# From where this machine has its own packages.
	mapfile -t archives < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n '\|/debian/*$|p')
	if [ ${#archives[@]} -eq 0 ]; then
		echo "rabbitmq.sh: RabbitMQ $1 comes from Debian's archive, and no source of this system's apt-get is one" >&2
		exit 1
	fi
	echo "fetching RabbitMQ $1 (Debian $release) into $cache" >&2
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	mkdir -p "$tmp/state/lists/partial" "$tmp/cache/archives/partial"
	touch "$tmp/status" # nothing is installed: every package that is needed is fetched
	echo "deb [signed-by=$keys] ${archives[0]} $release main" >"$tmp/sources.list"
	apt=(apt-get -q -y -o "Dir::State=$tmp/state" -o "Dir::State::status=$tmp/status" -o "Dir::Cache=$tmp/cache"
		-o "Dir::Etc::SourceList=$tmp/sources.list" -o Dir::Etc::SourceParts=- -o Dir::Etc::Preferences=- -o Dir::Etc::PreferencesParts=-
		-o APT::Sandbox::User=root -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Acquire::Languages=none -o Acquire::Retries=3)
	if ! { "${apt[@]}" update && "${apt[@]}" install --download-only --no-install-recommends "${needed[@]}"; } >"$tmp/log" 2>&1; then
		cat "$tmp/log" >&2
		echo "rabbitmq.sh: apt-get could not fetch RabbitMQ of Debian $release" >&2
		exit 1
	fi
	root=$tmp/rabbitmq
	mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
	ln -s usr/bin usr/sbin usr/lib usr/lib64 "$root"
	for package in "$tmp"/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$package" |
			tar -x --no-same-owner --keep-directory-symlink -C "$root" --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
	done
	[ -e "$root/usr/bin/sh" ] || ln -s dash "$root/usr/bin/sh"
	[ -e "$root/usr/bin/awk" ] || ln -s mawk "$root/usr/bin/awk"
	found=$(cd "$root/usr/lib/rabbitmq/lib" && echo rabbitmq_server-*)
	if [[ $found != "rabbitmq_server-$1."* ]]; then
		echo "rabbitmq.sh: Debian $release has $found, want $1; not used" >&2
		exit 1
	fi
	chmod -R a+rX "$root"
	# Whoever finished first has made the same directory.
	mv -T "$root" "$dir" 2>/dev/null || [ -d "$dir" ]
fi
echo "$dir"
