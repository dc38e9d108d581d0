#!/usr/bin/env bash
# Fetches Debezium Server, and Kafka Connect with Debezium's PostgreSQL connector, once, into the directory where
# internal/devenv/servers/debezium/install.go looks for them, and finds the Java 21 that they need; silent when all is there.
# `debezium.sh there` only tells by its exit status whether they are fetched, `debezium.sh java` prints which Java it is.
# Everything comes from Maven Central, pinned by version and hash. Of the Server's 780 MB a third is kept.
set -euo pipefail

version=3.6.1.Final
server=f95567c7107e5ae0a778dce850c36e86487b2c49e131dfc9bbb72c7ac2feb944 # sha256 of its archive
kafka=4.3.1
logging=2.25.4 # log4j-slf4j-impl, as for the broker
connect=23e0d51ea659a2845c0476987730e94d8857bc44c0f133d82acf1ea65a956cac # sha256 of the list of its jars' sha256

. "$(dirname "$0")/maven.sh"
dir=$cache/debezium-$version

fetched() { [ -d "$dir/connect" ]; }
if [ "${1:-}" = there ]; then
	fetched
	exit
fi

# major JAVA: its version, 0 when it cannot be run.
major() {
	local said
	said=$("$1" -version 2>&1) || true
	if [[ $said =~ version\ \"([0-9]+) ]]; then
		echo "${BASH_REMATCH[1]}"
	else
		echo 0
	fi
}

# java is the one that CDC_RELAY_JAVA names, else that of PATH if it is new enough, else one that stands beside it or where
# Debian's packages are.
java() {
	local candidate path=
	if [ -n "${CDC_RELAY_JAVA:-}" ]; then
		if [ "$(major "$CDC_RELAY_JAVA")" -lt 21 ]; then
			echo "debezium.sh: Debezium needs Java 21 or later, and CDC_RELAY_JAVA=$CDC_RELAY_JAVA is none" >&2
			return 1
		fi
		command -v "$CDC_RELAY_JAVA"
		return
	fi
	if path=$(command -v java); then
		path=$(readlink -f "$path")
	fi
	for candidate in $path ${path:+"${path%/*/*/*}"/*/bin/java} /usr/lib/jvm/*/bin/java; do
		if [ -x "$candidate" ] && [ "$(major "$candidate")" -ge 21 ]; then
			echo "$candidate"
			return
		fi
	done
	echo "debezium.sh: Debezium needs Java 21 or later; install a JDK (on Debian 13: sudo apt-get install openjdk-21-jre-headless)" >&2
	echo "debezium.sh: anywhere and say where by CDC_RELAY_JAVA=/path/to/bin/java" >&2
	return 1
}

# The largest of what belongs to other databases and other destinations. The Server's own jars of these must stay: it looks at
# each of them when it starts.
unneeded=(rocketmq-rocksdb pulsar-client-4 quarkus-ide-launcher hibernate-core grpc-netty-shaded grpc-xds vitess- bouncy-castle byte-buddy
	bcprov bcpkix ojdbc jt400 infinispan-core conscrypt rxjava mysql-connector ehcache jgroups proto-google-cloud mongodb-driver xmlparserv2
	orai18n google-cloud- mssql-jdbc netty-tcnative mariadb-java junit-)

fetch() {
	begin Debezium
	echo "fetching Debezium Server $version (800 MB, of which a third is kept) and Kafka Connect $kafka into $cache" >&2
	# Not all of it has checksums there; the hashes above are what counts.
	jars "$tmp/debezium/connect" "org.apache.kafka:connect-runtime:$kafka" "org.apache.kafka:connect-json:$kafka" \
		"io.debezium:debezium-connector-postgres:$version" "org.apache.logging.log4j:log4j-slf4j-impl:$logging"
	expect "the list of the jars of Kafka Connect $kafka" "$connect" sums "$tmp/debezium/connect"

	local archive="$tmp/archive/debezium-server-dist-$version.tar.gz" name
	maven "$copy:copy" "-Dartifact=io.debezium:debezium-server-dist:$version:tar.gz" "-DoutputDirectory=${archive%/*}"
	rm -rf "$tmp/m2"
	expect "the archive of Debezium Server $version" "$server" cat "$archive"
	mkdir "$tmp/debezium/server"
	tar --no-same-owner --strip-components=1 -xzf "$archive" -C "$tmp/debezium/server" --wildcards \
		'debezium-server/lib/*' 'debezium-server/*-runner.jar'
	for name in "${unneeded[@]}"; do
		rm -f "$tmp/debezium/server/lib/$name"*.jar
	done
	keep "$tmp/debezium" "$dir"
}

found=$(java)
if [ "${1:-}" = java ]; then
	echo "$found"
	exit
fi
fetched || fetch
if [ "$(cat "$dir/java" 2>/dev/null || true)" != "$found" ]; then
	new=$(mktemp "$dir/java.XXXXXX") # another run may do the same
	echo "$found" >"$new"
	chmod a+r "$new"
	mv "$new" "$dir/java"
fi
