#!/bin/sh
# After the files of the package are gone.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
	;;
purge)
	if [ -n "$(ls -A /etc/cdc-relay/credentials 2>/dev/null)" ]; then
		echo 'The passwords in /etc/cdc-relay/credentials stay. Remove them, if nothing else needs them.'
	fi
	;;
esac
