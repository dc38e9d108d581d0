# shellcheck shell=bash
# Fetches from Maven Central, for kafka.sh and debezium.sh, which source this file: into $cache, by way of $tmp, pinned by version
# and hash. What they say begins with their own name.

if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache/cdc-relay
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-relay
fi
me=${0##*/}

begin() { # begin NAME: makes $tmp, in which NAME is put together, and which is gone when the script ends
	wanted=$1
	if ! command -v mvn >/dev/null; then
		echo "$me: $wanted comes from Maven Central, but Maven is not installed; run: sudo apt-get install maven" >&2
		exit 1
	fi
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
}

maven() { # maven ARGS...: a repository of its own: what is in ~/.m2 stays as it is, and is not trusted
	if ! (cd "$tmp" && mvn --batch-mode -Dstyle.color=never "-Dmaven.repo.local=$tmp/m2" "$@") 2>&1 | tee "$tmp/log" |
		sed -un 's/^\[INFO\] Downloaded from .*\/\([^/ ]*\.jar\) (\([^ ]* [^ ]*\) .*/  fetched \1, \2/p' >&2; then
		cat "$tmp/log" >&2
		echo "$me: Maven could not fetch $wanted" >&2
		exit 1
	fi
}
copy=org.apache.maven.plugins:maven-dependency-plugin:3.8.1 # its goals: copy-dependencies, copy

jars() { # jars DIR GROUP:ARTIFACT:VERSION... [-- ARGS...]: these and all that they need
	local dir=$1 group artifact version dependencies=
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		IFS=: read -r group artifact version <<<"$1"
		dependencies+="<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
		shift
	done
	cat >"$tmp/pom.xml" <<-POM
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion>
		  <groupId>cdc-relay</groupId>
		  <artifactId>fetched</artifactId>
		  <version>1</version>
		  <packaging>pom</packaging>
		  <dependencies>$dependencies</dependencies>
		</project>
	POM
	maven "${@:2}" "$copy:copy-dependencies" "-DoutputDirectory=$dir"
}

expect() { # expect WHAT SHA256 COMMAND...: what the command prints is what was fetched before
	local what=$1 want=$2 got
	got=$("${@:3}" | sha256sum | cut -d' ' -f1)
	if [ "$got" != "$want" ]; then
		echo "$me: $what has sha256 $got, want $want; not used" >&2
		exit 1
	fi
}

sums() { # sums DIR: the list of its jars' sha256
	(cd "$1" && sha256sum -- *.jar | LC_ALL=C sort)
}

keep() { # keep FROM TO: the end of begin. Whoever finished first has made the same directory
	chmod -R a+rX "$1"
	mv -T "$1" "$2" 2>/dev/null || fetched
	rm -rf "$tmp"
	trap - EXIT
}
