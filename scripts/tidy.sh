#!/usr/bin/env bash
# Runs `go mod tidy` in each module of go.work; `tidy.sh -diff` only says what differs. The modules require each other in
# versions that may not be released yet: here those are folders, as go.work says. No go.mod and no go.sum gets a trace of it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export GOWORK=off
red=0
for dir in $(sed -n 's|^\t\(\.[^ ]*\)$|\1|p' go.work); do
	cd "$root/$dir"
	cp go.mod "$tmp/go.mod"
	cp go.sum "$tmp/go.sum" 2>/dev/null || : >"$tmp/go.sum"
	ours=()
	while read -r module version folder; do
		[ "$module" = "$(go list -m)" ] || ours+=("$module@$version=$root/$folder")
	done < <(sed -n 's|^\t\(github.com[^ ]*\) \(v[^ ]*\) => \(.*\)|\1 \2 \3|p' "$root/go.work")
	go mod edit "${ours[@]/#/-replace=}" "$tmp/go.mod"
	go mod tidy -modfile="$tmp/go.mod"
	for module in "${ours[@]%%=*}"; do go mod edit -dropreplace="$module" "$tmp/go.mod"; done
	for file in go.mod go.sum; do
		if [ "${1:-}" = -diff ]; then
			diff -u --label "$dir/$file" --label "$dir/$file tidied" "$file" "$tmp/$file" || red=1
		else
			cp "$tmp/$file" "$file"
		fi
	done
done
# Any `go list -m all` or `go doc` writes go.work.sum, and a clean checkout would not be clean any more.
cd "$root"
cp go.work.sum "$tmp/go.work.sum"
GOWORK= go list -m all >/dev/null
if [ "${1:-}" = -diff ]; then
	diff -u --label go.work.sum --label "go.work.sum tidied" "$tmp/go.work.sum" go.work.sum || red=1
	cp "$tmp/go.work.sum" go.work.sum
fi
exit $red
