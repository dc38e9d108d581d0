package importer

import (
	"fmt"
	"strings"
)

// This file has the rules about the connector, its slot and publication, snapshots and positions.

const postgresClass = "io.debezium.connector.postgresql.PostgresConnector"

func databaseRules() []rule {
	const url = "source.url"
	return []rule{
		when(honoured("", "PostgreSQL's alone; the connectors of other databases and of MongoDB: cannot", "connector.class"), func(b *builder, p *property) {
			switch class, _ := p.value.plain(); strings.TrimSpace(class) {
			case postgresClass, "PostgresConnector", "Postgres":
				b.say(p, Honoured, "source", "")
			default:
				b.cannot(p, "is another connector; this relay reads PostgreSQL")
			}
		}),
		superseded("the relay is named by its slot", "name"),
		superseded("one slot has one reader, here as there", "tasks.max", "tasks.max.enforce"),
		honoured(url, "", "database.hostname", "database.port", "database.user", "database.dbname"),
		when(honoured("source.password", "a reference stays one; a password that stands in the file is copied to a file of mode 0600 (`-o`), and not to stdout", "database.password"), (*builder).takePassword),
		oneOf(honoured(url, "disable, allow, prefer, require, verify-ca and verify-full", "database.sslmode"), "",
			map[string]string{"disable": "", "allow": "", "prefer": "", "require": "", "verify-ca": "", "verify-full": ""}),
		honoured(url, "a PEM file in both", "database.sslcert", "database.sslrootcert"),
		when(honoured(url, "a PEM file; PKCS#8 in DER (.pk8, .der), which the Java driver takes, and PKCS#12 (.p12, .pfx): cannot, with the line that converts it", "database.sslkey"), (*builder).takeKey),
		when(honoured(url, "the password of the key", "database.sslpassword"), func(b *builder, p *property) {
			if p.value.onlyReferences() {
				b.say(p, Honoured, url, "")
				return
			}
			b.cannot(p, "is a password in an address that is shown; decrypt the key (openssl pkey -in KEY -out KEY.pem), or write a reference")
		}),
		oneOf(superseded("org.postgresql.ssl.LibPQFactory is what the relay does; another class: cannot, there are no Java classes here", "database.sslfactory"), noClasses,
			map[string]string{"org.postgresql.ssl.LibPQFactory": "certificates are read as libpq does", "": ""}),
		superseded("the relay's connections keep themselves alive", "database.tcpKeepAlive", "database.tcpkeepalive"),
		when(mapped(url, "SET name = value becomes a parameter of the connection; any other statement: cannot", "database.initial.statements"), (*builder).takeStatements),
		superseded("every question to the database has its own bound", "database.query.timeout.ms", "connection.validation.timeout.ms", "database.connection.timeout.ms"),
		impossible(noClasses, "database.connection.factory.class"),
	}
}

func slotRules() []rule {
	const noHeartbeats = "PostgreSQL's keepalives move the slot while nothing happens; there are no heartbeat messages"
	return []rule{
		when(honoured("", "pgoutput; decoderbufs (Debezium's default) and wal2json: cannot. A slot's plugin is fixed: keep Debezium running, leave source.slot at the relay's own, and let `cdc-relay takeover --from-slot NAME` move over", "plugin.name"), func(b *builder, p *property) {
			if b.is(p.name, "", "pgoutput") {
				b.say(p, Honoured, "", "")
				return
			}
			b.cannot(p, fmt.Sprintf("is %q. %s", p.value.resolved(), otherPlugin(b.slot())))
		}),
		when(honoured("source.slot", "Debezium's own slot (default `debezium`): the relay goes on at its confirmed_flush_lsn", "slot.name"), (*builder).takeSlot),
		unlessOn("the relay never drops a slot at its stop", "stopping Debezium would drop the slot that the relay is to take over: set it to false there, restart Debezium, then import", "slot.drop.on.stop"),
		superseded("the slot exists, and has this property or not", "slot.failover"),
		superseded("the relay waits for its slot, and for PostgreSQL, as long as it takes", "slot.max.retries", "slot.retry.delay.ms"),
		oneOf(superseded("origin=any is what the relay asks for; other parameters: cannot", "slot.stream.params"), "the relay asks for no other parameters", map[string]string{"origin=any": "the relay asks for any origin", "": "there are none"}),
		when(honoured("source.publication", "Debezium's own publication (default `dbz_publication`)", "publication.name"), (*builder).takePublication),
		superseded("the publication exists and is used as it is: all tables, all operations, rows that are deleted in their own transaction", "publication.autocreate.mode", "replica.identity.autoset.values"),
		superseded("the publication exists, and has this property or not. For a partitioned outbox the relay needs it, and `cdc-relay check` says how to turn it on", "publish.via.partition.root"),
		when(superseded(noHeartbeats, "heartbeat.interval.ms"), func(b *builder, p *property) {
			b.warn(p, Superseded, "", noHeartbeats)
			b.entries[len(b.entries)-1].Warning = !b.is(p.name, "", "0")
		}),
		warned(superseded("an idle outbox moves its slot without it; if anything else needs the rows that it writes, run it elsewhere", "heartbeat.action.query")),
		warned(superseded("no heartbeat messages are sent to that topic", "topic.heartbeat.prefix", "topic.heartbeat.name", "heartbeat.topics.prefix")),
		superseded("the relay reports its position whenever it moves", "status.update.interval.ms", "xmin.fetch.interval.ms", "lsn.flush.timeout.ms", "lsn.flush.timeout.action"),
		oneOf(superseded("the slot moves behind the broker's confirms; manual: cannot, nobody else may move it", "lsn.flush.mode"), "nobody else may move the slot",
			map[string]string{"connector": "the slot moves behind the broker's confirms", "connector_and_driver": "the slot moves behind the broker's confirms and while nothing happens"}),
		when(superseded("true as lsn.flush.mode connector; false: cannot, as manual", "flush.lsn.source"), func(b *builder, p *property) {
			if b.is(p.name, "", "true") {
				b.say(p, Superseded, "", "the slot moves behind the broker's confirms")
				return
			}
			b.cannot(p, "the slot is moved by somebody else, and nobody else may move the relay's")
		}),
		superseded("the slot is the only offset", "offset.mismatch.strategy", "offset.storage", "offset.storage.*", "offset.commit.policy", "offset.flush.timeout.ms", "offsets.storage.topic"),
		when(superseded("the slot is the only offset; what Debezium sent within this time before it was stopped hard may arrive twice", "offset.flush.interval.ms"), func(b *builder, p *property) {
			b.say(p, Superseded, "", "the slot is the only offset; what Debezium sent within this time before it was stopped hard may arrive twice")
		}),
		superseded("these bound how Debezium connects and reads", "schema.refresh.mode", "streaming.delay.ms", "executor.shutdown.timeout.ms", "read.only"),
	}
}

func snapshotRules() []rule {
	return []rule{
		when(superseded("no_data and never: the relay streams; initial (the default): moot, the slot exists and goes on; any other mode: cannot, rows that were there before the slot are not read", "snapshot.mode"), func(b *builder, p *property) {
			switch mode, _ := p.value.plain(); strings.ToLower(strings.TrimSpace(mode)) {
			case "no_data", "never":
				b.say(p, Honoured, "", "the relay streams from the slot")
			case "initial":
				b.say(p, Superseded, "", "the snapshot was made when the slot was; the relay goes on from the slot")
			default:
				b.cannot(p, "the relay reads no rows that were there before the slot; set it to no_data there first")
			}
		}),
		superseded("there is no snapshot", "snapshot.*", "legacy.snapshot.max.threads", "incremental.snapshot.*"),
	}
}

func (b *builder) takeSlot(p *property) {
	if !b.pgoutput() {
		b.say(p, Superseded, "", "the slot is of another plugin, from which cdc-relay takeover moves to one of the relay's own, cdc_relay")
		return
	}
	b.say(p, Honoured, "source.slot", "")
}

func (b *builder) takePublication(p *property) {
	if !b.pgoutput() {
		b.say(p, Superseded, "", "only pgoutput has publications; takeover makes one of the relay's own, cdc_relay")
		return
	}
	b.say(p, Honoured, "source.publication", "")
}

// source writes the section source, but for the tables.
func (b *builder) source() {
	b.address()
	if b.byName["connector.class"] == nil {
		b.absent(Cannot, "connector.class", "", "it says which connector this is")
	}
	if b.byName["plugin.name"] == nil {
		b.absent(Cannot, "plugin.name", "", "Debezium's default is decoderbufs. "+otherPlugin(b.slot()))
	}
	if !b.pgoutput() {
		return // the slot and the publication are the relay's own, by their defaults
	}
	b.named("source.slot", "slot.name", "debezium")
	b.named("source.publication", "publication.name", "dbz_publication")
	b.doc.set("source.create", "false", "slot and publication exist: a missing one is a mistake, not a start from now")
	if b.byName["snapshot.mode"] == nil {
		b.absent(Superseded, "snapshot.mode", "", "initial, which is moot: the slot exists")
	}
}

// pgoutput is true when the relay can read Debezium's slot.
func (b *builder) pgoutput() bool { return b.is("plugin.name", "decoderbufs", "pgoutput") }

func (b *builder) slot() string {
	name, _ := b.plain("slot.name", "debezium")
	return name
}

func otherPlugin(slot string) string {
	return fmt.Sprintf("A slot's plugin is fixed: keep Debezium running, and let `cdc-relay takeover --from-slot %s` move to a pgoutput slot of the relay's own", slot)
}

// named writes a name that has a default in Debezium.
func (b *builder) named(path, name, byDefault string) {
	if p := b.get(name); p != nil {
		b.set(path, quote(p.value.resolved()), p)
		return
	}
	b.doc.set(path, byDefault, "Debezium's default")
	b.absent(Honoured, name, path, "Debezium's default, "+byDefault)
}
