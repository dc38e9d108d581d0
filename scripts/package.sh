#!/usr/bin/env bash
# Tests some packages, with the servers that they need: package.sh TAGS PACKAGES; make test PKG=./internal/sink/rabbit.
# A server that is installed is started by the tests. For one that is not, Docker runs a container (test/compose.yaml) until
# the tests have ended. Without Docker scripts/deps.sh installs it as root on Debian, or prints the command.
set -euo pipefail
cd "$(dirname "$0")/.."

tags=$1
shift
sources() { # sources FLAGS PACKAGES: the files of ours that tests are compiled of
	go list -test -tags "$tags" -f '{{$dir := .Dir}}{{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}' "$@" |
		sed -n '/^\/[^ ]*\.go$/p' | grep -v // | sort -u
}
# What starts servers for all tests mentions each kind; who uses it says which.
files=$(sources "$@"; sources -deps "$@" | grep -v /internal/devenv/)
uses() { # uses PATTERN: does a test use such a server?
	xargs grep -qE "$1" <<<"$files"
}

wanted=()
if uses '\<servers\.\w*(Postgres|Database)|pgserver\.'; then
	wanted+=(postgres)
fi
if uses '\<servers\.\w*(Rabbit|VHost)|rabbitserver\.'; then
	wanted+=(rabbitmq)
fi
if uses '\<servers\.\w*Kafka|kafkaserver\.'; then
	wanted+=(kafka)
fi

echo "servers: ${wanted[*]:-none}"
is_installed() {
	case $1 in
	postgres) ls -d /usr/lib/postgresql/*/bin/postgres || pg_config --bindir ;;
	rabbitmq) [ -e /usr/lib/rabbitmq/bin/rabbitmq-server ] || command -v rabbitmq-server ;;
	kafka) command -v java && scripts/kafka.sh there ;;
	esac >/dev/null 2>&1
}

missing=()
for server in "${wanted[@]}"; do
	is_installed "$server" || missing+=("$server")
done
if [ ${#missing[@]} -gt 0 ] && docker info >/dev/null 2>&1; then
	compose=(docker compose --file test/compose.yaml)
	echo "starting in Docker: ${missing[*]} ..."
	trap '"${compose[@]}" down --volumes >/dev/null 2>&1' EXIT
	"${compose[@]}" up --detach --quiet-pull --wait "${missing[@]}"
	for server in "${missing[@]}"; do
		case $server in
		postgres) export CDC_RELAY_TEST_POSTGRES="postgres://postgres@$("${compose[@]}" port postgres 5432)/" ;;
		rabbitmq)
			export CDC_RELAY_TEST_RABBITMQ="amqp://guest:guest@$("${compose[@]}" port rabbitmq 5672)/"
			export CDC_RELAY_TEST_RABBITMQ_API="http://$("${compose[@]}" port rabbitmq 15672)"
			;;
		kafka) export CDC_RELAY_TEST_KAFKA=127.0.0.1:29092 ;;
		esac
	done
elif [ ${#missing[@]} -gt 0 ]; then
	scripts/deps.sh "${missing[@]}"
	if [[ " ${missing[*]} " == *" kafka "* ]]; then
		scripts/kafka.sh
	fi
fi
bin/testrun -count=1 -vet=off -p 2 -parallel 4 -tags "$tags" "$@"
