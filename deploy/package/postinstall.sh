#!/bin/sh
# After the files of the package are there. A deb says "configure" and the version before, if there was one; an rpm says
# how many versions there are now. Nothing is enabled or started: the service has no configuration yet. What ran before
# an upgrade runs the new version.
set -e
[ -d /run/systemd/system ] || exit 0 # a container or a chroot
systemctl daemon-reload || true
case "$1 $2" in
"configure "?* | [2-9]*)
	systemctl try-restart cdc-relay.service || echo 'cdc-relay did not start again: journalctl -u cdc-relay' >&2
	;;
esac
