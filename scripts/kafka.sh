#!/usr/bin/env bash
# Fetches Apache Kafka once, into the directory where the tests look for it (internal/devenv/servers/kafkaserver/install.go); silent when
# it is there. `kafka.sh there` only tells by its exit status whether it is. `kafka.sh 3.9` fetches that version and prints its directory,
# which CDC_RELAY_TEST_KAFKA_DIR gives to the tests.
# The jars come from Maven Central, pinned by version and hash.
set -euo pipefail

asked=${1:-}
case $asked in
3.9)
	version=3.9.1
	logging=org.slf4j:slf4j-reload4j:1.7.36
	sha256=f56fb39ed5d68d7748071cc853e2b1998014100dc156be7c0489f42a6af7ec28
	;;
'' | there)
	version=4.3.1
	logging=org.apache.logging.log4j:log4j-slf4j-impl:2.25.4 # Kafka's own archive has it beside the jars: without it a broker says nothing
	sha256=80d5f2ff03ba5ddfbd4f4673c38638d7448bbf0ca689b9799cceefce6ab56b9b
	;;
*)
	echo "usage: scripts/kafka.sh [3.9|there]" >&2
	exit 2
	;;
esac

. "$(dirname "$0")/maven.sh"
dir=$cache/kafka-$version

fetched() { [ -e "$dir/bootstrap.checkpoint" ]; }
if [ "$asked" = there ]; then
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
	begin Kafka
	echo "fetching Apache Kafka $version (org.apache.kafka:kafka_2.13) into $cache" >&2
	jars "$tmp/kafka/libs" "org.apache.kafka:kafka_2.13:$version" "$logging" -- --strict-checksums
	expect "the list of the jars of Kafka $version" "$sha256" sums "$tmp/kafka/libs"
	# What "format" writes into an empty data directory about features is the same for every cluster: it is kept.
	properties "$tmp" 1 2
	format "$tmp" "$tmp/kafka/libs"
	mv "$tmp/data/bootstrap.checkpoint" "$tmp/kafka/"
	keep "$tmp/kafka" "$dir"
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
	new=$(mktemp "$dir/classpath.XXXXXX") # another run may do the same
	{
		printf -- '-cp "%s"\n' "$(printf '%s:' "$dir"/libs/*.jar)"
		if [ "$asked" = 3.9 ]; then # log4j 1; Kafka 4 has log4j 2, which takes its level from a property alone
			echo "-Dlog4j.configuration=file:$dir/log4j.properties"
			printf '%s\n' 'log4j.rootLogger=INFO, out' log4j.appender.out=org.apache.log4j.ConsoleAppender \
				log4j.appender.out.layout=org.apache.log4j.PatternLayout 'log4j.appender.out.layout.ConversionPattern=%d %-5p %m%n' >"$dir/log4j.properties"
		fi
	} >"$new"
	chmod a+r "$new"
	mv "$new" "$dir/classpath"
fi
if [ "$(cat "$dir/classes.java" 2>/dev/null || true)" != "$java" ]; then
	echo "starting Kafka once, to keep the classes that it loads (a few seconds)" >&2
	archive
fi
if [ -n "$asked" ]; then
	echo "$dir"
fi
