#!/usr/bin/env bash
# Checks what the relay and the services of the shop are built of: each module has a licence that is allowed, and no code
# that they call has a known vulnerability. `supply-chain.sh licences` does the first alone, which needs no database.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/release-tools.sh)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for main in . examples/shop/order-service examples/shop/notification-service; do
	case $main in
	.) module=. folder=cmd/cdc-relay ;;
	*) module=${main%/*} folder=${main##*/} ;;
	esac
	"$tools/cyclonedx-gomod" app -json -licenses -std -noserial -notimestamp -main "$folder" -output "$tmp/${folder##*/}.json" "$module"
done
"$tools/licences" "$tmp"/*.json
[ "${1:-}" != licences ] || exit 0

if ! "$tools/govulncheck" ./cmd/... ./internal/... ./outbox/... ./inbox/... ./examples/shop/... 2>"$tmp/said"; then
	cat "$tmp/said" >&2
	if grep -q 'fetching vulnerabilities' "$tmp/said"; then
		echo "supply-chain: vuln.go.dev, the database of vulnerabilities, does not answer: nothing was checked against it" >&2
	fi
	exit 1
fi
