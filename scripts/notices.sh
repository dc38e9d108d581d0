#!/usr/bin/env bash
# Prints the licences and notices of what programs are built of: Go, the modules of their packages,
# with what these have of others in folders of their own, and the files of others in the console. A
# module without a licence is an error.
#   scripts/notices.sh ./cmd/cdc-relay
set -euo pipefail
shopt -s nullglob
go=$(go env GOROOT)
files=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}} {{$.Dir}}{{end}}{{end}}' "$@" |
	while read -r module version root dir; do
		[ -n "$module" ] || continue
		found=()
		while found+=("$dir"/{LICEN[CS]E,COPYING,NOTICE,PATENTS}*) && [ "$dir" != "$root" ]; do
			dir=${dir%/*}
		done
		[ ${#found[@]} -gt 0 ] || { echo "$module $version has no licence" >&2; exit 1; }
		for file in "${found[@]}"; do
			if [ -f "$file" ]; then echo "$module $version: ${file#"$root"/} $file"; fi
		done
	done | LC_ALL=C sort -u)
pages=$(go list -deps -f '{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}' "$@" | while read -r dir; do
	for file in "$dir"/static/lib/{NOTICE*,LICENSE*}; do echo "${dir##*/} static/lib: ${file##*/} $file"; done
done)
printf 'Go %s: LICENSE %s\n%s\n' "$(go env GOVERSION)" "$go/LICENSE" "$files${pages:+$'\n'$pages}" | while read -r module version name file; do
	printf '%s\n%s %s %s\n\n' '================================================================' "$module" "$version" "$name"
	cat "$file"
	echo
done
