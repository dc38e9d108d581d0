#!/usr/bin/env bash
# Packages the Helm chart: DIRECTORY/cdc-relay-VERSION.tgz, the same bytes for the same commit.
set -euo pipefail
out=$(realpath -m "${1:?usage: chart.sh DIRECTORY}")
cd "$(dirname "$0")/.."
mkdir -p "$out"
tar --create --dereference --hard-dereference --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
	--mode=u=rwX,go=rX --mtime="@$(git log -1 --format=%ct)" -C deploy/helm cdc-relay |
	gzip -n -9 >"$out/cdc-relay-$(sed -n 's/^version: //p' deploy/helm/cdc-relay/Chart.yaml).tgz"
