#!/usr/bin/env bash
# Installs what the tests and the demo need from the system's packages: PostgreSQL, and what is asked for by name.
#   rabbitmq, prometheus (with promtool), pgbouncer
#   kafka     Java, and what fetches Kafka (scripts/kafka.sh)
#   debezium  what fetches Debezium (scripts/debezium.sh)
#   plugins   decoderbufs and wal2json, which other programs' slots use
#   python    what the consumer in Python imports
#   systemd   what checks its units
#   upgrade   what fetches PostgreSQL with pg_upgrade (scripts/pg-upgrade.sh)
#   browser   what looks at the console
#   install   what makes a fresh Debian and boots it, opens an rpm, and runs programs of arm64
#   all       these without debezium, upgrade, browser and install, and what make test-all needs as well: a C compiler for
#             the race detector, node to fetch other versions of PostgreSQL
# The tests start private servers of their own: the packages' services are not started and no cluster is created.
# Silent when everything is there; else it says what it installs while it does.
set -euo pipefail

asked=$*
wants() { # wants NAME: was it asked for, by itself or with all?
	[[ " $asked " == *" $1 "* || " $asked " == *" all "* ]]
}

missing=()
need() { # need PACKAGE FILE...: the package is missing unless one of the files exists
	local package=$1 file
	shift
	for file in "$@"; do
		[ -e "$file" ] && return
	done
	missing+=("$package")
}
need_command() { # need_command PACKAGE COMMAND
	command -v "$2" >/dev/null || missing+=("$1")
}

# A server elsewhere on PATH is not enough on Debian: the tests look where its packages put them.
need postgresql /usr/lib/postgresql/*/bin/postgres
# The packages of plugins go by the server's version, which is known once it is there.
newest=$(find /usr/lib/postgresql -mindepth 3 -path '*/bin/postgres' 2>/dev/null | cut -d / -f 5 | sort -n | tail -n 1 || true)
if wants plugins && [ -n "$newest" ]; then
	need "postgresql-$newest-decoderbufs" "/usr/lib/postgresql/$newest/lib/decoderbufs.so"
	need "postgresql-$newest-wal2json" "/usr/lib/postgresql/$newest/lib/wal2json.so"
fi
if wants rabbitmq; then
	need rabbitmq-server /usr/lib/rabbitmq/bin/rabbitmq-server
fi
if wants pgbouncer; then
	need pgbouncer /usr/sbin/pgbouncer
fi
if wants kafka; then
	need_command default-jre-headless java
	"$(dirname "$0")/kafka.sh" there || need_command maven mvn
fi
if [[ " $asked " == *" debezium "* ]] && ! "$(dirname "$0")/debezium.sh" there && [[ " ${missing[*]} " != *" maven "* ]]; then
	need_command maven mvn
fi
if wants prometheus; then
	need_command prometheus promtool
fi
if wants python; then
	need python3-pika /usr/lib/python3/dist-packages/pika/__init__.py
	need python3-psycopg /usr/lib/python3/dist-packages/psycopg/__init__.py # version 3
fi
if wants systemd; then
	need_command systemd systemd-analyze # the program alone is used: nothing is started by it
fi
if [[ " $asked " == *" upgrade "* ]] && ! python3 -m pip --version >/dev/null 2>&1; then
	missing+=(python3-pip)
fi
if [[ " $asked " == *" browser "* ]]; then
	need_command chromium chromium
fi
if [[ " $asked " == *" install "* ]]; then
	need_command debootstrap debootstrap
	need_command systemd-container systemd-nspawn
	need_command rpm rpm
	need_command qemu-user-static qemu-aarch64-static
fi
if wants all; then
	need_command gcc gcc
	need libc6-dev /usr/include/stdlib.h
	need_command make make
	need_command git git
	need_command nodejs node
	need_command npm npm
fi
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

if ! command -v apt-get >/dev/null; then
	echo "deps: this system has no apt-get. Install PostgreSQL 14 or later (server and contrib, the plugins decoderbufs and wal2json) and RabbitMQ 3.10 or later" >&2
	echo "deps: in the places of Debian's packages, or give CDC_RELAY_TEST_POSTGRES and CDC_RELAY_TEST_RABBITMQ," >&2
	echo "deps: Java 17 or later and Maven for Kafka, Prometheus 2.42 or later with promtool, Python's pika and psycopg 3; missing: ${missing[*]}" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "deps: ${missing[*]} must be installed (nothing is started); run: sudo bash $(realpath "$0")${asked:+ $asked}" >&2
	exit 1
fi

echo "deps: installing ${missing[*]} (no service is started, no database cluster is created)"

# Debian asks policy-rc.d before it starts a package's service; 101 forbids it. One that forbids it already stays, any
# other one is put aside and comes back in the end.
policy=/usr/sbin/policy-rc.d
saved=$policy.before-cdc-relay
cluster=/etc/postgresql-common/createcluster.d/cdc-relay-deps.conf
marker='# cdc-relay: no services while its dependencies are installed'
restore() {
	rm -f "$cluster"
	if grep -qsF "$marker" "$policy"; then
		rm -f "$policy"
	fi
	if [ -e "$saved" ] || [ -L "$saved" ]; then
		mv -f "$saved" "$policy"
	fi
}
restore # what a killed run has left
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

forbids() { # forbids SERVICE: does the policy in place forbid to start it?
	[ -x "$policy" ] || return 1
	local rc=0
	"$policy" "$1" start >/dev/null 2>&1 || rc=$?
	[ "$rc" -eq 101 ]
}
if ! forbids postgresql || ! forbids pgbouncer || ! forbids rabbitmq-server || ! forbids epmd || ! forbids prometheus; then
	if [ -e "$policy" ] || [ -L "$policy" ]; then
		mv "$policy" "$saved"
	fi
	printf '#!/bin/sh\n%s\nexit 101\n' "$marker" >"$policy"
	chmod 755 "$policy"
fi
if [ ! -d "${cluster%/*}" ]; then
	mkdir -p "${cluster%/*}"
fi
echo 'create_main_cluster = false' >"$cluster"

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'restore; rm -f "$log"' EXIT
install() {
	apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}" 2>&1 </dev/null | tee "$log" |
		sed -un -e 's/^Need to get/deps: downloading/p' -e 's/^Setting up \([^ ]*\).*/deps: installed \1/p'
}
# The package lists are fetched only when they are missing or name versions that are gone.
if ! install; then
	echo "deps: fetching the package lists"
	if ! { apt-get update >/dev/null && install; }; then
		cat "$log" >&2
		echo "deps: apt-get could not install ${missing[*]}" >&2
		exit 1
	fi
fi
if [ -z "$newest" ] && wants plugins; then
	bash "$0" "$@"
fi
