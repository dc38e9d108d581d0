#!/usr/bin/env bash
# Fetches Apache Kafka once, into the directory where the tests look for it (internal/devenv/kafka_install.go); silent when
# it is there. `kafka.sh there` only tells by its exit status whether it is.
# The jars come from Maven Central, pinned by version and hash.
set -euo pipefail

version=4.3.1
logging=2.25.4 # log4j-slf4j-impl, which Kafka's own archive has beside it: without it a broker says nothing
sha256=80d5f2ff03ba5ddfbd4f4673c38638d7448bbf0ca689b9799cceefce6ab56b9b

if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
dir=$cache/kafka-$version

fetched() { [ -e "$dir/bootstrap.checkpoint" ]; }
if [ "${1:-}" = there ]; then
	fetched
	exit
fi

if ! command -v java >/dev/null; then
	echo "kafka.sh: Kafka needs Java, which is not installed; run: sudo apt-get install default-jre-headless" >&2
	exit 1
fi
java=$(java -version 2>&1) || true
if ! [[ $java =~ version\ \"([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 17 ]; then
	echo "kafka.sh: Kafka needs Java 17 or later; \`java -version\` says: ${java%%$'\n'*}" >&2
	exit 1
fi

fetch() {
	if ! command -v mvn >/dev/null; then
		echo "kafka.sh: Kafka comes from Maven Central, but Maven is not installed; run: sudo apt-get install maven" >&2
		exit 1
	fi
	echo "fetching Apache Kafka $version (org.apache.kafka:kafka_2.13) into $cache" >&2
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	cat >"$tmp/pom.xml" <<-POM
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion>
		  <groupId>cdc-relay</groupId>
		  <artifactId>kafka</artifactId>
		  <version>1</version>
		  <packaging>pom</packaging>
		  <dependencies>
		    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
		    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>$logging</version></dependency>
		  </dependencies>
		</project>
	POM
	# A repository of its own: what is in ~/.m2 stays as it is, and is not trusted.
	if ! (cd "$tmp" && mvn --batch-mode --quiet --strict-checksums -Dstyle.color=never "-Dmaven.repo.local=$tmp/m2" \
		org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies "-DoutputDirectory=$tmp/kafka/libs") >"$tmp/log" 2>&1; then
		cat "$tmp/log" >&2
		echo "kafka.sh: Maven could not fetch Kafka $version" >&2
		exit 1
	fi
	local got
	got=$(cd "$tmp/kafka/libs" && sha256sum -- *.jar | LC_ALL=C sort | sha256sum | cut -d' ' -f1)
	if [ "$got" != "$sha256" ]; then
		echo "kafka.sh: the jars of Kafka $version have sha256 $got, want $sha256; not used" >&2
		exit 1
	fi
	# What "format" writes into an empty data directory about features is the same for every cluster: it is kept.
	properties "$tmp" 1 2
	format "$tmp" "$tmp/kafka/libs"
	mv "$tmp/data/bootstrap.checkpoint" "$tmp/kafka/"
	chmod -R a+rX "$tmp/kafka"
	# Whoever finished first has made the same directory.
	mv -T "$tmp/kafka" "$dir" 2>/dev/null || fetched
	rm -rf "$tmp"
	trap - EXIT
}

properties() { # properties DIR PORT PORT
	cat >"$1/server.properties" <<-PROPERTIES
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$3
		controller.listener.names=CONTROLLER
		listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$3
		log.dirs=$1/data
		log.cleaner.dedupe.buffer.size=2097152
	PROPERTIES
}

format() { # format DIR JARS
	if ! java -cp "$2/*" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c "$1/server.properties" >"$1/log" 2>&1; then
		cat "$1/log" >&2
		echo "kafka.sh: Kafka could not format a directory" >&2
		exit 1
	fi
}

# archive lets a broker run for a moment and has Java write down the classes that it has loaded: with this file a broker is
# there in half of the time. It fits one build of Java only and is made again for another one; a broker starts without it,
# too, so that it could not be made is no error.
archive() {
	tmp=$(mktemp -d)
	trap 'kill "${broker:-}" 2>/dev/null || true; rm -rf "$tmp"' EXIT
	properties "$tmp" $((20000 + RANDOM % 6000)) $((26000 + RANDOM % 6000))
	format "$tmp" "$dir/libs"
	java -Xmx256m -XX:+UseSerialGC -Dlog4j2.level=INFO "-XX:ArchiveClassesAtExit=$tmp/classes.jsa" @"$dir/classpath" kafka.Kafka \
		"$tmp/server.properties" >"$tmp/log" 2>&1 &
	broker=$!
	for ((i = 0; i < 300; i++)); do
		if grep -q 'Kafka Server started' "$tmp/log" || ! kill -0 "$broker" 2>/dev/null; then
			break
		fi
		sleep 0.1
	done
	kill "$broker" 2>/dev/null || true
	wait "$broker" || true
	broker=
	if [ -e "$tmp/classes.jsa" ]; then
		chmod a+r "$tmp/classes.jsa"
		mv "$tmp/classes.jsa" "$dir/"
		echo "$java" >"$dir/classes.java"
	fi
	rm -rf "$tmp"
	trap - EXIT
}

fetched || fetch
if [ ! -e "$dir/classpath" ]; then
	# The archive belongs to this class path, in this order.
	printf -- '-cp "%s"\n' "$(printf '%s:' "$dir"/libs/*.jar)" >"$dir/classpath.new"
	chmod a+r "$dir/classpath.new"
	mv "$dir/classpath.new" "$dir/classpath"
fi
if [ "$(cat "$dir/classes.java" 2>/dev/null || true)" != "$java" ]; then
	archive
fi
