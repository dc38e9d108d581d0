// The rules about the connector, its slot and publication, snapshots and positions.

package rules

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

const PostgresClass = "io.debezium.connector.postgresql.PostgresConnector"

func databaseRules() []rule {
	return []rule{
		oneOf(honoured("source", "only PostgreSQL's; connectors of other databases: cannot", "connector.class"), "this relay reads PostgreSQL",
			map[string]string{PostgresClass: "", "PostgresConnector": "", "Postgres": ""}),
		superseded("the relay is named by its slot", "name"),
		superseded("one slot has one reader, here as there", "tasks.max", "tasks.max.enforce"),
		when(honoured(sourceURL, "one host; several: cannot", "database.hostname"), func(b *Builder, p *settings.Property) {
			if text, _ := p.Value.Plain(); strings.Contains(text, ",") {
				b.Cannot(p, "names several hosts; write one here, and all of them to source.url afterwards")
				return
			}
			b.Say(p, output.Honoured, sourceURL, "")
		}),
		honoured(sourceURL, "", "database.port", "database.user", "database.dbname"),
		when(honoured("source.password", "a reference stays one; a plain password is copied only into the file of `-o` (mode 0600)", "database.password"), func(b *Builder, p *settings.Property) { b.takeSecret(p, "source.password") }),
		oneOf(honoured(sourceURL, "disable, allow, prefer, require, verify-ca and verify-full", "database.sslmode"), "",
			map[string]string{"disable": "", "allow": "", "prefer": "", "require": "", "verify-ca": "", "verify-full": ""}),
		honoured(sourceURL, "a PEM file in both", "database.sslcert", "database.sslrootcert"),
		when(honoured(sourceURL, "a PEM file; PKCS#8 in DER (.pk8, .der), which the Java driver takes, and PKCS#12 (.p12, .pfx): cannot, with the line that converts it", "database.sslkey"), (*Builder).takeKey),
		when(honoured(sourceURL, "the password of the key", "database.sslpassword"), func(b *Builder, p *settings.Property) {
			if p.Value.OnlyReferences() {
				b.Say(p, output.Honoured, sourceURL, "")
				return
			}
			b.Cannot(p, "is a password in an address that is shown; decrypt the key (openssl pkey -in KEY -out KEY.pem), or write a reference")
		}),
		oneOf(superseded("org.postgresql.ssl.LibPQFactory is what the relay does; another class: cannot, there are no Java classes here", "database.sslfactory"), noClasses,
			map[string]string{"org.postgresql.ssl.LibPQFactory": "certificates are read as libpq does", "": ""}),
		superseded("the relay's connections keep themselves alive", "database.tcpKeepAlive", "database.tcpkeepalive"),
		impossible("the relay sends no statements of its own at the start of a connection; ALTER ROLE … SET does the same for the role", "database.initial.statements"),
		superseded("every question to the database has its own bound", "database.query.timeout.ms", "connection.validation.timeout.ms", "database.connection.timeout.ms"),
		impossible(noClasses, "database.connection.factory.class"),
	}
}

func slotRules() []rule {
	const noHeartbeats = "PostgreSQL's keepalives move the slot while nothing happens; there are no heartbeat messages"
	return []rule{
		superseded("the relay's own slot is of pgoutput, and takes the place of a slot of any plugin", "plugin.name"),
		superseded("`cdc-relay takeover --from-slot NAME` moves from Debezium's slot to one of the relay's own, cdc_relay", "slot.name"),
		unlessOn("the relay never drops a slot at its stop", "stopping Debezium would drop the slot that the relay is to take over: set it to false there, restart Debezium, then import", "slot.drop.on.stop"),
		superseded("the slot exists, and has this property or not", "slot.failover"),
		superseded("the relay waits for its slot, and for PostgreSQL, as long as it takes", "slot.max.retries", "slot.retry.delay.ms"),
		oneOf(superseded("origin=any is what the relay asks for; other parameters: cannot", "slot.stream.params"), "the relay asks for no other parameters", map[string]string{"origin=any": "the relay asks for any origin", "": "there are none"}),
		when(honoured("source.publication", "Debezium's own publication (default `dbz_publication`)", "publication.name"), (*Builder).takePublication),
		superseded("the publication exists and is used as it is: all tables, all operations, rows that are deleted in their own transaction", "publication.autocreate.mode", "replica.identity.autoset.values"),
		superseded("the publication exists, and has this property or not. For a partitioned outbox the relay needs it, and `cdc-relay check` says how to turn it on", "publish.via.partition.root"),
		when(superseded(noHeartbeats, "heartbeat.interval.ms"), func(b *Builder, p *settings.Property) {
			b.Warn(p, output.Superseded, "", noHeartbeats)
			b.Entries[len(b.Entries)-1].Warning = !b.Is(p.Name, "", "0")
		}),
		warned(superseded("an idle outbox moves its slot without it; if anything else needs the rows that it writes, run it elsewhere", "heartbeat.action.query")),
		warned(superseded("no heartbeat messages are sent to that topic", "topic.heartbeat.prefix", "topic.heartbeat.name", "heartbeat.topics.prefix")),
		superseded("the relay reports its position whenever it moves", "status.update.interval.ms", "xmin.fetch.interval.ms", "lsn.flush.timeout.ms", "lsn.flush.timeout.action"),
		oneOf(superseded("the slot moves behind the broker's confirms; manual: cannot, nobody else may move it", "lsn.flush.mode"), "nobody else may move the slot",
			map[string]string{"connector": "the slot moves behind the broker's confirms", "connector_and_driver": "the slot moves behind the broker's confirms and while nothing happens"}),
		oneOf(superseded("true: as lsn.flush.mode connector; false: cannot, as manual", "flush.lsn.source"), "nobody else may move the slot",
			map[string]string{"true": "the slot moves behind the broker's confirms"}),
		superseded("the slot is the only offset", "offset.mismatch.strategy", "offset.storage", "offset.storage.*", "offset.commit.policy", "offset.flush.timeout.ms", "offsets.storage.topic"),
		superseded("the slot is the only offset; what Debezium sent within this time before it was stopped hard may arrive twice", "offset.flush.interval.ms"),
		superseded("these bound how Debezium connects and reads", "schema.refresh.mode", "streaming.delay.ms", "executor.shutdown.timeout.ms", "read.only"),
	}
}

func snapshotRules() []rule {
	return []rule{
		oneOf(superseded("no_data, never: the relay streams; initial (the default): the slot exists already; others: cannot, rows from before the slot are not read", "snapshot.mode"),
			"the relay reads no rows that were there before the slot; set it to no_data there first", map[string]string{
				"no_data": "the relay streams from the slot", "never": "the relay streams from the slot",
				"initial": "the snapshot was made when the slot was; the relay goes on from the slot",
			}),
		superseded("there is no snapshot", "snapshot.*", "legacy.snapshot.max.threads", "incremental.snapshot.*"),
	}
}

func (b *Builder) takePublication(p *settings.Property) {
	if !b.pgoutput() {
		b.Say(p, output.Superseded, "", "only pgoutput has publications; takeover makes one of the relay's own, cdc_relay")
		return
	}
	b.Say(p, output.Honoured, "source.publication", "")
}

// source writes the section source, but for the tables.
func (b *Builder) source() {
	b.address()
	if b.ByName["connector.class"] == nil {
		b.Absent(output.Cannot, "connector.class", "", "it says which connector this is")
	}
	const publication, byDefault = "source.publication", "dbz_publication"
	switch p := b.Get("publication.name"); {
	case !b.pgoutput(): // the publication is the relay's own, by its default
	case p != nil:
		b.Set(publication, output.Quote(p.Value.Resolved()), p)
	default:
		b.Doc.Set(publication, byDefault, "Debezium's default")
		b.Absent(output.Honoured, "publication.name", publication, "Debezium's default, "+byDefault)
	}
	b.Doc.Set("source.create", "false", "takeover makes the slot: a missing one is a mistake, not a start from now")
	if b.ByName["snapshot.mode"] == nil {
		b.Absent(output.Superseded, "snapshot.mode", "", "initial, which is moot: the slot exists")
	}
}

// pgoutput is true when Debezium has a publication.
func (b *Builder) pgoutput() bool { return b.Is("plugin.name", "decoderbufs", "pgoutput") }

func (b *Builder) slot() string {
	name, _ := b.Plain("slot.name", "debezium")
	return name
}
