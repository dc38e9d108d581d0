#!/bin/sh
# After the files of the package are gone.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	;;
esac
