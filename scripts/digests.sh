#!/usr/bin/env bash
# Pins the images that deploy/ names to the digests of their tags. Each digest is what the registry
# answers now; without an answer an image stays as it is, and the script fails.
#   scripts/digests.sh [FOLDER]
set -euo pipefail
cd "${1:-$(dirname "$0")/../deploy}"
files=(*.yaml *Dockerfile)
# Ours have no tag: nobody else builds them.
names='^( *image: |FROM |FROM --platform=[^ ]+ |# syntax=)'
images=$(sed -nE "s/$names([^ @:]+:[^ @]+).*/\2/p" "${files[@]}" | sort -u)
failed=0
for image in $images; do
	version=$(sed -n 's/^ARG GO_VERSION=//p' Dockerfile)
	digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "${image/'${GO_VERSION}'/$version}") || digest=
	if [[ ! $digest =~ ^sha256:[0-9a-f]{64}$ ]]; then
		echo "$image: the registry gives no digest" >&2
		failed=1
		continue
	fi
	echo "$image $digest"
	pattern=$(sed 's/[.${}]/\\&/g' <<<"$image")
	sed -i -E "s~$names($pattern)(@sha256:[0-9a-f]{64})?( |\$)~\1\2@$digest\4~" "${files[@]}"
done
exit $failed
