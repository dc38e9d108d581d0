#!/usr/bin/env bash
# Writes the man pages cdc-relay(1) and cdc-relay.yaml(5) into a folder: man.sh VERSION GO-MD2MAN FOLDER. They are made of
# docs/reference.md and docs/configuration.md, which tests compare with the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 md2man=$2 to=$3
day=$(git show -s --format=%cs)
site=https://github.com/cdc-relay/cdc-relay

# section prints what is below a heading of the second level, with the headings one level up.
section() { awk -v heading="## $2" '/^## / {on = $0 == heading} on' "$1" | heading_up; }
heading_up() { awk '/^```/ {code = !code} !code {sub(/^##/, "#")} 1'; }
# A man page has no links within the repository, no names of tests, and no table that may be wider than a terminal: those
# that begin with keys or values become lists.
plain() {
	perl -0pe '
		s/\[([^\]]*)\]\([^)\s]*\)/$1/g;
		s/^\| (Code|\d) \| ([^|]*) \| [^|]* \| ([^|]*?) *\|.*$/| $1 | $2 | $3 |/mg; s/^(\|---){5}\|$/|---|---|---|/mg;
		s/^\| (Key|You write) \|.*\n\|-.*\n//mg;
		s/^\| (`[a-z_.]+`) \| (.+?) \| (.*) \|$/$1, default $2\n: $3\n/mg; s/^\| (`.*?) \| (.*) \|$/$1\n: $2\n/mg'
}
page() { "$md2man" | gzip -9n >"$to/$1.gz"; }

{
	printf '# cdc-relay 1 %s "cdc-relay %s"\n\n# NAME\n\ncdc-relay - relay committed outbox rows from PostgreSQL to RabbitMQ or Kafka\n\n' "$day" "$version"
	printf '# SYNOPSIS\n\n**cdc-relay** *COMMAND* [*FLAGS*]\n\n'
	section docs/reference.md Commands
	section docs/reference.md 'Exit codes'
	printf '\n# SEE ALSO\n\n**cdc-relay.yaml**(5), %s/tree/%s/docs\n' "$site" "$version"
} | plain | page cdc-relay.1
{
	printf '# cdc-relay.yaml 5 %s "cdc-relay %s"\n\n# NAME\n\ncdc-relay.yaml - configuration of cdc-relay\n\n' "$day" "$version"
	sed 1d docs/configuration.md | heading_up
	printf '\n# SEE ALSO\n\n**cdc-relay**(1), %s/tree/%s/docs\n' "$site" "$version"
} | plain | page cdc-relay.yaml.5
