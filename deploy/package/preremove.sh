#!/bin/sh
# Before the files of the package go: a deb says "remove" or "upgrade", an rpm how many versions stay. The slot, the
# tables and what administrators have put into /etc/cdc-relay stay.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now cdc-relay.service || true
	elif command -v systemctl >/dev/null; then
		systemctl --quiet disable cdc-relay.service || true
	fi
	echo 'The replication slot of cdc-relay stays and keeps WAL. Drop it: cdc-relay teardown --yes, or pg_drop_replication_slot.'
	;;
esac
