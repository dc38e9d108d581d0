#!/usr/bin/env bash
# Makes all files of a release in dist/, from the commit of HEAD: release.sh v0.1.0. It needs Go, git and the modules that
# go.mod names, but no tag, no Docker and no token, and it publishes nothing. The same commit gives the same bytes with the
# same releases of Go, gzip, GNU tar, perl and awk, on machines of one kind (the lists of modules name the program that made
# them): it builds in a clone of its own, and the only time in any file is the commit's.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
version=${1:-}
fail() {
	echo "release: $*" >&2
	exit 1
}
g() { git -c safe.directory='*' "$@"; }

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "VERSION is '$version', want one such as v0.1.0"
[ -z "$(g status --porcelain)" ] || fail "there are changes that are not committed, and a release is a commit"
tagged=$(g rev-parse -q --verify "refs/tags/$version^{commit}") || tagged=
[[ $tagged == "" || $tagged == $(g rev-parse HEAD) ]] || fail "the tag $version is on another commit, $tagged"
# The section of the version in CHANGELOG.md.
section=$(awk -v heading="## [${version#v}]" '/^## |^\[.*\]: / {on = index($0, heading) == 1; next} on' CHANGELOG.md)
[[ $section == *[![:space:]]* ]] || fail "CHANGELOG.md has no section '## [${version#v}]'"
# A release has one version for all its modules.
modules=('' inbox/ internal/kafkaclient/ outbox/)
other=$(g grep -E 'github.com/cdc-relay/cdc-relay/[^ ]+ v' -- "${modules[@]/%/go.mod}" | grep -v " $version\$" | head -n 1) || other=
[ -z "$other" ] || fail "a module asks for another version of its own release: $other"

# What could make the bytes differ.
umask 022
unset "${!GIT_@}" GITHUB_TOKEN GITLAB_TOKEN GITEA_TOKEN
GOPROXY=$(go env GOPROXY) GOSUMDB=$(go env GOSUMDB) GOTOOLCHAIN=$(go env GOTOOLCHAIN)
export GOPROXY GOSUMDB GOTOOLCHAIN GOENV=off # what `go env -w` has set
export LC_ALL=C TZ=UTC GOFLAGS= GOWORK= GOEXPERIMENT= GOFIPS140=off GOAMD64=v1 GOARM64=v8.0 CGO_ENABLED=0
tools=$(scripts/release-tools.sh)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
g clone -q --depth 1 "file://$root" "$tmp/clone"
cd "$tmp/clone"
for module in "${modules[@]}"; do git -c tag.gpgSign=false tag -f "$module$version" >/dev/null; done
commit=$(git rev-parse HEAD)
COMMIT_DATE=$(git show -s --format=%cI)
SOURCE_DATE_EPOCH=$(git show -s --format=%ct)
export COMMIT_DATE SOURCE_DATE_EPOCH GORELEASER_CURRENT_TAG=$version

echo "== notices, lists of modules, completion, man pages"
made=.cache/release # .gitignore has it: the build is of a clean checkout
mkdir -p $made/{linux,darwin,man,completion}
for os in linux darwin; do
	GOOS=$os GOARCH=arm64 scripts/notices.sh ./cmd/cdc-relay >$made/$os/THIRD-PARTY-NOTICES
	for arch in amd64 arm64; do
		GOOS=$os GOARCH=$arch "$tools/cyclonedx-gomod" app -json -licenses -std -noserial -notimestamp -main cmd/cdc-relay \
			-output "$made/cdc-relay_${version#v}_${os}_$arch.cdx.json" . 2> >(grep -v 'no licenses detected' >&2)
	done
done
gzip -9nk $made/linux/THIRD-PARTY-NOTICES
go build -trimpath -buildvcs=false -o "$tmp/cdc-relay" ./cmd/cdc-relay
"$tmp/cdc-relay" completion bash >$made/completion/cdc-relay.bash
"$tmp/cdc-relay" completion zsh >$made/completion/_cdc-relay
"$tmp/cdc-relay" completion fish >$made/completion/cdc-relay.fish
scripts/man.sh "$version" "$tools/go-md2man" $made/man
printf 'cdc-relay (%s) stable; urgency=medium\n\n  * https://github.com/cdc-relay/cdc-relay/releases/tag/%s\n\n -- %s  %s\n' \
	"${version#v}" "$version" "$(sed -n 's/^ *maintainer: //p' .goreleaser.yaml)" "$(git show -s --format=%cD)" | gzip -9n >$made/changelog.gz

echo "== Helm chart"
scripts/chart.sh $made
[ -e "$made/cdc-relay-${version#v}.tgz" ] || fail "deploy/helm/cdc-relay/Chart.yaml names another version"

echo "== binaries, archives, packages"
"$tools/goreleaser" release --clean --skip=publish
said=$(dist/cdc-relay_"$(go env GOHOSTOS)_$(go env GOHOSTARCH)"_*/cdc-relay version)
[[ $said == "cdc-relay $version ($commit of $COMMIT_DATE) "* ]] || fail "the binary does not know what it is: $said"
[ -z "$(git status --porcelain)" ] || fail "the build has changed the checkout: $(git status --porcelain)"

echo "== image"
at() { echo "$tmp/image/$arch/$1"; } # what the Dockerfile's first stage would have built
folders=()
for arch in amd64 arm64; do
	mkdir -p "$(at out)" "$(at etc/ssl/certs)" "$(at usr/share/doc/ca-certificates)" "$(at usr/local/go/lib/time)"
	cp dist/cdc-relay_linux_"$arch"_*/cdc-relay $made/linux/THIRD-PARTY-NOTICES "$(at out)"
	sed -n "s|^RUN echo '\(.*\)' >/out/passwd\$|\1|p" deploy/Dockerfile >"$(at out/passwd)"
	[ -s "$(at out/passwd)" ] || fail "deploy/Dockerfile has no line that writes /out/passwd"
	cp "$(go env GOROOT)/lib/time/zoneinfo.zip" "$(at usr/local/go/lib/time)"
	"$tools/roots" >"$(at etc/ssl/certs/ca-certificates.crt)"
	cp deploy/package/ca-certificates.copyright "$(at usr/share/doc/ca-certificates/copyright)"
	folders+=("$arch=$tmp/image/$arch")
done
digest=$("$tools/image" -to dist/image -time "$COMMIT_DATE" -arg "VERSION=${version#v}" -arg "COMMIT=$commit" "${folders[@]}")

# Links of the section lead to the pages of this version.
{
	sed -E "s~\]\((docs/|deploy/|[A-Z]+\.md)~](https://github.com/cdc-relay/cdc-relay/blob/$version/\1~g" <<<"$section" | sed '/./,$!d'
	printf '\nBuilt of commit %s with %s. The image is `ghcr.io/cdc-relay/cdc-relay:%s@%s`.\n' "$commit" "$(go env GOVERSION)" "${version#v}" "$digest"
} >dist/release-notes.md

# Of goreleaser's own files dist/ has none.
rm -rf "$root/dist"
mkdir "$root/dist"
mv dist/*.tar.gz dist/*.deb dist/*.rpm dist/checksums.txt dist/release-notes.md dist/image $made/*.tgz $made/*.cdx.json "$root/dist"
cd "$root/dist"
sha256sum --check --quiet checksums.txt
ls -ld -- *
echo "release: dist/ has $version of commit $commit, made with $(go env GOVERSION); the image is $digest"
