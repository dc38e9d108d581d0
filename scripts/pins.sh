#!/usr/bin/env bash
# Pins what others publish under a name that they can move: the images that deploy/ names to the digests of their tags,
# the actions of .github/workflows to the commits of theirs, with the tag behind it. Each is what the registry or the
# repository answers now; without an answer a line stays as it is, and the script fails. Run it again to renew them.
#   scripts/pins.sh [ROOT]
set -euo pipefail
shopt -s nullglob
cd "${1:-$(dirname "$0")/..}"
failed=0

workflows=(.github/workflows/*.yml)
files=(deploy/*.yaml deploy/*Dockerfile "${workflows[@]}")
# Ours have no tag: nobody else builds them.
names='^( *image: | *container: |FROM |FROM --platform=[^ ]+ |# syntax=)'
for image in $(sed -nE "s/$names([^ @:]+:[^ @]+).*/\2/p" "${files[@]}" | sort -u); do
	version=$(sed -n 's/^ARG GO_VERSION=//p' deploy/Dockerfile)
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

# owner/name@tag, or owner/name@commit # tag
for action in $(sed -nE 's/^ *-? *uses: ([^ @]+)@([0-9a-f]{40} # )?([^ ]+)$/\1@\3/p' "${workflows[@]}" | sort -u); do
	name=${action%@*} tag=${action##*@}
	# A tag with a message has a line of its own for the commit, the last one.
	commit=$(git ls-remote "https://github.com/$(cut -d / -f 1,2 <<<"$name")" "refs/tags/$tag" "refs/tags/$tag^{}" | tail -n 1 | cut -f 1) || commit=
	if [[ ! $commit =~ ^[0-9a-f]{40}$ ]]; then
		echo "$action: the repository gives no commit" >&2
		failed=1
		continue
	fi
	echo "$action $commit"
	sed -i -E "s~(uses: $name)@([0-9a-f]{40} # )?$tag\$~\1@$commit # $tag~" "${workflows[@]}"
done
exit $failed
