#!/usr/bin/env bash
# Proves what users get of a release. It makes a version of each public module of this checkout, in a folder that go takes
# for a module proxy, and from there installs the relay and builds services. What this machine's module cache lacks of
# other modules comes from GOPROXY (with GOPROXY=off from nowhere). `modules.sh proxy DIR` only makes that folder: test/install
# runs what is built from it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
main=github.com/cdc-relay/cdc-relay
version=v$(sed -n '/^## \[[0-9]/{s/^## \[\([^]]*\)\].*/\1/p;q}' CHANGELOG.md)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
proxy=$tmp/proxy
[ "${1:-}" != proxy ] || proxy=$2

fail() {
	echo "modules: $*" >&2
	exit 1
}
g() { git -c safe.directory='*' "$@"; }
# what go says besides errors
exec 2> >(grep --line-buffered -vE '^(go: (downloading|added|creating|to add)|\s+go mod tidy)' >&2)

commit=$(g stash create) # what is not committed counts, too
commit=${commit:-HEAD}

# release makes the version of the module in a folder: all that is below it, but the folders of other modules.
release() {
	local folder=$1 module=$main${1:+/$1} at license=() nested
	at=$proxy/$module/@v
	mkdir -p "$at"
	mapfile -t nested < <(g ls-tree -r --name-only "$commit:$folder" | sed -n 's|^\(.*\)/go\.mod$|:(exclude)\1|p')
	[ -z "$folder" ] || license=(--add-file=LICENSE) # go does so
	g archive --format=zip --prefix="$module@$version/" "${license[@]}" -o "$at/$version.zip" "$commit:$folder" . "${nested[@]}"
	g show "$commit:${folder:+$folder/}go.mod" >"$at/$version.mod"
	! grep '^replace' "$at/$version.mod" || fail "$module has a replace: go install refuses it"
	echo "$version" >"$at/list"
	echo "{\"Version\": \"$version\", \"Time\": \"2026-01-01T00:00:00Z\"}" >"$at/$version.info"
}
for folder in '' inbox internal/kafkaclient outbox; do release "$folder"; done
[ "${1:-}" != proxy ] || exit 0

# service makes the program that imports packages, and its go.mod and go.sum.
service() {
	local dir=$tmp/$1
	shift
	mkdir "$dir" && cd "$dir"
	{ echo 'package main'; printf 'import _ "%s"\n' "$@"; echo 'func main() {}'; } >main.go
	go mod init example.org/service && go get "${@/%/@${at:-$version}}" && go mod tidy && go build -o /dev/null .
}
# code is of which modules the service in a folder has the source, and not only the go.mod.
code() { awk '$2 !~ /\/go\.mod$/ {print $1}' "$tmp/$1/go.sum"; }

(
	cd "$root"
	CGO_ENABLED=0 go build -trimpath -o "$tmp/workspace" ./cmd/cdc-relay
)
pgx=$(cd outbox && GOWORK=off go list -m -f '{{.Version}}' github.com/jackc/pgx/v5)
export GOWORK=off GOFLAGS=-modcacherw GONOSUMDB='*' GOBIN=$tmp/bin CGO_ENABLED=0
export GOPROXY="file://$proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" GOMODCACHE=$tmp/cache

echo "the relay, as go install makes it"
(cd "$tmp" && go install -trimpath "$main/cmd/cdc-relay@$version")
modules() { go version -m "$1" | awk -v main="$main" '$1 ~ /^(dep|=>)$/ && index($2, main) != 1 {print $1, $2, $3}'; }
diff <(modules "$tmp/workspace") <(modules "$tmp/bin/cdc-relay") || fail "the relay that was tested (<) has other modules than the one that is installed (>)"
[ "$("$tmp/bin/cdc-relay" version | awk '{print $2; exit}')" = "$version" ] || fail "it does not know its version: $("$tmp/bin/cdc-relay" version)"

echo "a service that writes events"
(service outbox $main/outbox)
(at=$pgx service pgx github.com/jackc/pgx/v5)
diff <(sort "$tmp/pgx/go.sum") <(sort "$tmp/outbox/go.sum" | grep -v "^$main/outbox ") || fail "outbox needs more (>) than pgx"

echo "services that consume"
(service rabbit $main/inbox/rabbit)
(service kafka $main/inbox/kafka)
for pattern in segmentio/kafka-go google.golang.org/grpc '^github.com/cdc-relay/cdc-relay$'; do
	! code rabbit | grep "$pattern" || fail "a service with inbox/rabbit has the source of $pattern"
done
! code kafka | grep -E "amqp091-go|google.golang.org/grpc|^$main$" || fail "a service with inbox/kafka has the source of it"
echo "modules: a service has the source of $(code outbox | wc -l) modules with outbox, $(code rabbit | wc -l) with inbox/rabbit, $(code kafka | wc -l) with inbox/kafka"
